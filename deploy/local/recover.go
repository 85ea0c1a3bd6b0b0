package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/embednats"
)

const (
	healthCheckInterval = time.Second
	// maxTransientFailures is the number of consecutive health checks that may fail before the
	// server is restarted.
	maxTransientFailures = 2
	// minFreeBytes is the free disk space, in bytes, that the server needs before it is restarted.
	minFreeBytes = 8 << 20
	// giveUpAfter is how long the server may be unhealthy without its disk being full. After that
	// the process exits, so that its supervisor restarts it.
	giveUpAfter = time.Minute
)

// recoverNATS restarts the embedded server within the process once its disk has room again, because
// the server does not recover by itself from a full disk. It returns nil when ctx ends, and
// otherwise an error with the reason why the process should exit.
func recoverNATS(
	ctx context.Context, server *embednats.Server, storeDir string, log logrus.FieldLogger,
) error {
	tick := time.NewTicker(healthCheckInterval)
	defer tick.Stop()
	var (
		failed    int  // number of consecutive checks that found the server unhealthy
		restarted bool // whether the server was restarted since it was last healthy
		// outSince is when the server was first found unhealthy although its disk had room. Zero
		// means that the server is healthy or that its disk is full.
		outSince time.Time
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		health := server.Health()
		switch {
		case health == nil:
			failed, restarted, outSince = 0, false, time.Time{}
			continue
		// The server is also briefly unhealthy while a stream is deleted.
		case failed < maxTransientFailures:
			failed++
			continue
		case checkFreeSpace(storeDir) != nil:
			outSince = time.Time{} // there is too little disk space, so a restart would fail, too
			continue
		case outSince.IsZero():
			outSince = time.Now()
		}
		if !restarted {
			restarted = true
			log.WithError(health).Warn("the NATS server could not write; there is room on its " +
				"disk, so that it is restarted")
			if err := server.Restart(); err != nil {
				return fmt.Errorf("the NATS server could not be restarted after its disk was "+
					"full: %w", err)
			}
		} else if time.Since(outSince) > giveUpAfter {
			return fmt.Errorf("the NATS server does not recover (%w); the process ends so that "+
				"it is started anew", health)
		}
	}
}

// checkFreeSpace returns an error if it cannot write room bytes to a file in the folder. It removes
// the file.
func checkFreeSpace(dir string) error {
	path := filepath.Join(dir, "room-is-tried")
	//nolint:gosec // the operator's own folder
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, minFreeBytes))
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close(), os.Remove(path))
}
