package embednats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/hookstart/hookstart/shared/durable"
)

// unreadableConsumer is a consumer whose state the server could not read when it recovered its
// stream. A power cut can leave behind a file that is empty, truncated or full of zeros. The server
// then continues without the consumer, and refuses to recreate it.
type unreadableConsumer struct{ account, stream, name string }

// parseUnreadableConsumer returns the consumer named in a server warning that a consumer's state
// could not be read. args holds the arguments of the warning. ok is false if the warning is about
// something else.
func parseUnreadableConsumer(args []any) (c unreadableConsumer, ok bool) {
	if len(args) != 4 {
		return c, false
	}
	reason, ok := args[3].(*server.ApiError)
	if !ok || reason.ErrCode != uint16(server.JSConsumerStoreFailedErrF) ||
		!strings.Contains(reason.Description, "corrupt state file") {
		return c, false
	}
	c.account, _ = args[0].(string)
	c.stream, _ = args[1].(string)
	c.name, _ = args[2].(string)
	return c, c.account != "" && c.stream != "" && c.name != ""
}

// resetConsumer copies the unreadable state file of a consumer and then resets the consumer. If
// AfterLast returns true, the consumer then begins after the sequence last, which is that of the
// stream's last message; otherwise it begins with the stream's first message. The server must not
// be running. The unreadable file is replaced or removed last, so that the next start repeats a
// reset that was interrupted.
func (o Options) resetConsumer(c unreadableConsumer, last uint64) error {
	path := filepath.Join(o.StoreDir, "jetstream", c.account, "streams", c.stream, "obs", c.name,
		"o.dat")
	aside := path + ".unreadable"
	unreadable, err := os.ReadFile(path) //nolint:gosec // the server's own folder
	if err == nil {
		err = durable.WriteFile(aside, unreadable, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the NATS server cannot read %s, which could not be copied: %w", path,
			withoutPath(err))
	}
	begins := "the first message"
	afterLast := false
	if last > 0 && o.AfterLast != nil {
		if afterLast, err = o.AfterLast(c.stream, c.name); err != nil {
			return err
		}
	}
	if afterLast {
		begins = fmt.Sprintf("message %d", last+1)
		err = durable.WriteFile(path, encodeAckedState(last), 0o600)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if o.Log != nil {
		o.Log(slog.LevelWarn,
			fmt.Sprintf("the state of the consumer %s of %s could not be read, as after a power "+
				"cut; it is kept as %s, and the consumer begins with %s",
				c.name, c.stream, aside, begins))
	}
	return nil
}

// encodeAckedState returns the state, in the server's format, of a consumer that has acknowledged
// all messages up to last.
func encodeAckedState(last uint64) []byte {
	const magic, version = 22, 2
	state := []byte{magic, version}
	// The numbers are the last acknowledged and the last delivered message, each as a consumer
	// sequence and a stream sequence, and then the numbers of pending and of redelivered messages.
	for _, number := range []uint64{last, last, last, last, 0, 0} {
		state = binary.AppendUvarint(state, number)
	}
	return state
}

// lastStreamSequences returns, for each consumer, the sequence of the last message in its stream.
func lastStreamSequences(ns *server.Server, consumers []unreadableConsumer) ([]uint64, error) {
	all := make([]uint64, len(consumers))
	for i, c := range consumers {
		account, err := ns.JszAccount(&server.JSzOptions{Account: c.account, Streams: true})
		if err != nil {
			return nil, fmt.Errorf("NATS server: %w", err)
		}
		for _, stream := range account.Streams {
			if stream.Name == c.stream {
				all[i] = stream.State.LastSeq
			}
		}
	}
	return all, nil
}
