package service_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookstart/hookstart/shared/bus"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops/logtest"
	"github.com/hookstart/hookstart/shared/service"
)

// If a service's connection to NATS is closed permanently, the service ends with an error, so that
// a supervisor can restart it.
func TestAConnectionThatIsClosedEndsTheService(t *testing.T) {
	server := natstest.Start(t)
	config := service.Config{Name: "service", Description: "nothing"}
	config.Addr, config.OpsAddr, config.NATSURL = "127.0.0.1:0", "127.0.0.1:0", server.URL()
	config.ConnectTimeout, config.ShutdownTimeout = 20*time.Second, time.Second
	config.Log = logtest.Discard()
	err := service.Run(t.Context(), config, func(ctx context.Context, s *service.Service) error {
		if err := s.Connect(ctx); err != nil {
			return err
		}
		ready := func(string, string) {
			// The subject is longer than the server's max_control_line. nats.go does not know the
			// server's error and closes the connection.
			if err := s.NATS.Publish(strings.Repeat("x", 5000), nil); err != nil {
				t.Error(err)
			}
		}
		return s.Serve(ctx, &http.Server{ReadHeaderTimeout: time.Second}, nil, nil, ready)
	})
	if !errors.Is(err, bus.ErrClosed) {
		t.Errorf("the service ended with %v", err)
	}
}
