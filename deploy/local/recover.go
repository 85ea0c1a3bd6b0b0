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
	healthEvery = time.Second
	// transient is how often in a row the server may be out of order without a restart.
	transient = 2
	// room is how much must fit on the disk before the server is started again.
	room = 8 << 20
	// giveUpAfter is how long the server may be out of order with room on its disk: then the process
	// ends, and whoever supervises it starts it anew.
	giveUpAfter = time.Minute
)

// recoverNATS restarts the embedded server in place, once it can write again after it could not:
// it does not go on by itself after its disk was full. It returns nil when ctx ends, else why
// the process should end.
func recoverNATS(ctx context.Context, server *embednats.Server, storeDir string, log logrus.FieldLogger) error {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	var (
		failed    int       // how often in a row it was out of order
		restarted bool      // since the server was last in order
		outSince  time.Time // out of order, with room on the disk; zero: it is in order
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
		case failed < transient: // it is so for a moment while a stream is deleted, too
			failed++
			continue
		case hasRoom(storeDir) != nil:
			outSince = time.Time{} // it would only fail again
			continue
		case outSince.IsZero():
			outSince = time.Now()
		}
		if !restarted {
			restarted = true
			log.WithError(health).Warn("the NATS server could not write; there is room on its disk, so that it is restarted")
			if err := server.Restart(); err != nil {
				return fmt.Errorf("the NATS server could not be restarted after its disk was full: %w", err)
			}
		} else if time.Since(outSince) > giveUpAfter {
			return fmt.Errorf("the NATS server does not recover (%w); the process ends so that it is started anew", health)
		}
	}
}

// hasRoom finds out by writing whether a folder's disk takes more.
func hasRoom(dir string) error {
	path := filepath.Join(dir, "room-is-tried")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the operator's own folder
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, room))
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close(), os.Remove(path))
}
