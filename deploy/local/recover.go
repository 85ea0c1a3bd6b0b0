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
	// healthCheckTimeout is how long a health check may take. The limit is necessary because the
	// server does not answer while its disk stalls.
	healthCheckTimeout = 2 * time.Second
	// maxTransientFailures is the number of consecutive health checks that may fail without
	// consequence. After one more failure, the server is restarted if its disk has room.
	maxTransientFailures = 2
	// minFreeBytes is the free disk space, in bytes, below which the server is not restarted.
	minFreeBytes = 8 << 20
	// recoveryTimeout is how long the server may be unhealthy although its disk has room. After
	// that, the process exits, so that its supervisor restarts it.
	recoveryTimeout = time.Minute
)

// healthChecker queries the health of a server. It runs at most one call to health at a time.
type healthChecker struct {
	health    func() error  // may block while the disk stalls
	checkSlot chan struct{} // capacity 1; holds a value while health runs
}

func newHealthChecker(health func() error) *healthChecker {
	return &healthChecker{health: health, checkSlot: make(chan struct{}, 1)}
}

// check returns the result of health, or the error of ctx if ctx ends first.
func (c *healthChecker) check(ctx context.Context) error {
	select {
	case c.checkSlot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	result := make(chan error, 1)
	go func() {
		result <- c.health()
		<-c.checkSlot
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkWithin is like check, but returns an error if there is no result within timeout.
func (c *healthChecker) checkWithin(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.check(ctx)
}

// superviseNATS restarts the embedded server within the process once its disk has room again,
// because the server does not recover by itself from a full disk. It returns nil when ctx ends, and
// otherwise an error with the reason why the process should exit.
func superviseNATS(
	ctx context.Context, server *embednats.Server, checker *healthChecker, storeDir string,
	log logrus.FieldLogger,
) error {
	tick := time.NewTicker(healthCheckInterval)
	defer tick.Stop()
	var (
		failed    int  // number of consecutive checks that found the server unhealthy
		restarted bool // whether the server was restarted since it was last healthy
		// outSince is when the server was first found unhealthy although its disk had room. It is
		// zero while the server is healthy, or while its disk is full or stalls.
		outSince time.Time
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		health := checker.checkWithin(ctx, healthCheckTimeout)
		switch {
		// While the disk stalls, do nothing: the server continues as soon as the disk does, and a
		// restart would also have to wait for the disk.
		case errors.Is(health, context.DeadlineExceeded), errors.Is(health, context.Canceled):
			outSince = time.Time{}
			continue
		case health == nil:
			failed, restarted, outSince = 0, false, time.Time{}
			continue
		// Tolerate a few failures, because deleting a stream makes the server briefly unhealthy.
		case failed < maxTransientFailures:
			failed++
			continue
		case checkFreeSpace(storeDir) != nil:
			outSince = time.Time{} // with too little disk space, a restart would fail
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
		} else if time.Since(outSince) > recoveryTimeout {
			return fmt.Errorf("the NATS server does not recover (%w); the process ends so that "+
				"it is started anew", health)
		}
	}
}

// checkFreeSpace returns an error if it cannot write minFreeBytes bytes to a file in the folder. It
// removes the file afterwards.
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
