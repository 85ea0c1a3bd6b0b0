package soak

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/embednats/freeport"
)

// A program that gets SIGTERM while it is still waiting for NATS exits cleanly.
func TestTerminateWhileStarting(t *testing.T) {
	t.Parallel()
	nobody, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Release()
	i := &installation{folder: t.TempDir()}
	defer i.close()
	for role, program := range map[string]string{roleIngress: "ingress", roleExecutor: "executor"} {
		flags := []string{"--nats-url=nats://" + nobody.Addr()}
		if role == roleExecutor {
			flags = append(flags, "--admin-token="+adminToken)
		}
		s, err := i.newService(program, role, flags...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		defer s.kill()
		if err := eventually(t.Context(), time.Minute, func(ctx context.Context) error {
			if text, _ := s.readiness(ctx); text != program+": starting" {
				return errors.New(text)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		s.terminate()
		for _, complaint := range s.recordedAndLoggedProblems() {
			t.Error(complaint)
		}
	}
}
