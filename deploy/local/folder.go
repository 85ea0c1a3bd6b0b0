package local

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/executor"
	"github.com/hookstart/hookstart/shared/durable"
	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
)

// natsFolder is the folder inside the data folder where the embedded server stores its streams.
const natsFolder = "nats"

// prepareSecretsKey returns the path of the secrets key file: the configured file, or else
// secrets.key in the data folder. It creates secrets.key if that file does not exist.
func prepareSecretsKey(c Config) (path string, err error) {
	if c.SecretsKeyFile != "" {
		return c.SecretsKeyFile, nil
	}
	path = filepath.Join(c.DataDir, "secrets.key")
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = durable.WriteFile(path, []byte(seal.NewKeyLine()+"\n"), 0o600)
	}
	if err != nil {
		return "", folderError(c.DataDir, err)
	}
	return path, nil
}

// isNewFolder reports whether a data folder holds no data yet.
func isNewFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, natsFolder))
	return errors.Is(err, fs.ErrNotExist)
}

// adminTokenFile returns the path of the file with the generated admin token.
func adminTokenFile(dataDir string) string { return filepath.Join(dataDir, "admin-token") }

// prepareFolderAndToken creates the data folder and returns the admin token: the configured one, or
// else the one stored in the folder, or else a new one, which it stores there.
func prepareFolderAndToken(c Config) (adminToken string, err error) {
	if err := durable.MkdirAll(c.DataDir, 0o700); err != nil {
		return "", folderError(c.DataDir, err)
	}
	if c.AdminToken != "" {
		return c.AdminToken, nil
	}
	path := adminTokenFile(c.DataDir)
	kept, err := os.ReadFile(path) //nolint:gosec // the operator's own folder
	if token := strings.TrimSpace(string(kept)); err == nil && token != "" {
		return token, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", folderError(c.DataDir, err)
	}
	var bits [24]byte
	_, _ = rand.Read(bits[:]) // never fails, according to the documentation of crypto/rand
	token := "hsa_" + base64.RawURLEncoding.EncodeToString(bits[:])
	if err := durable.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", folderError(c.DataDir, err)
	}
	return token, nil
}

func folderError(dir string, err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("cannot use the data folder %s (%w); make it writable, or choose another "+
		"with --data-dir", dir, err)
}

// startNATS starts the embedded server, which stores its data below the data folder.
func startNATS(c Config, log logrus.FieldLogger) (*embednats.Server, error) {
	host, portText, err := net.SplitHostPort(c.NATSAddr)
	if err != nil {
		return nil, fmt.Errorf("--nats-addr %q is not HOST:PORT", c.NATSAddr)
	}
	if host == "" {
		host = "0.0.0.0" // all interfaces, as in the addresses of the other listeners
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil,
			fmt.Errorf("--nats-addr %q: the port must be a number from 0 to 65535", c.NATSAddr)
	}
	server, err := embednats.Start(embednats.Options{
		StoreDir:   filepath.Join(c.DataDir, natsFolder),
		Host:       host,
		Port:       port,
		SyncAlways: c.SyncAlways,
		MaxPayload: maxMessageBytes(c.MaxBodyBytes),
		MaxStore:   c.NATSMaxStore,
		// AfterLast is called for each consumer whose state the server cannot read. It returns true
		// for the consumers of runners, which then begin after the last message. If they began at
		// the first one, runners would repeat finished executions. Unfinished executions are not
		// lost, because the executor redelivers them.
		AfterLast: func(streamName, consumer string) (bool, error) {
			_, own := stream.QueueOfOwnStream(streamName)
			if streamName != stream.ExecutionsName && !own ||
				!strings.HasPrefix(consumer, stream.RunnerConsumerPrefix) {
				return false, nil
			}
			skipping := executor.SkippingConsumer{Stream: streamName, Consumer: consumer}
			// Record that this consumer skips messages. Otherwise the executor would end the
			// unfinished executions as failed, instead of redelivering them.
			return true, recordSkippingConsumer(c.DataDir, skipping)
		},
		Log: func(level slog.Level, line string) {
			if level >= slog.LevelWarn {
				log.WithField("detail", line).Warn("NATS server")
			}
		},
	})
	switch {
	case errors.Is(err, embednats.ErrLocked):
		return nil,
			fmt.Errorf("the data folder %s is %w; stop that one, or choose another with --data-dir",
				c.DataDir, embednats.ErrLocked)
	case err != nil:
		return nil, fmt.Errorf("%w (--nats-addr, --data-dir)", err)
	}
	return server, nil
}

// skippingConsumersFolder is a folder inside the data folder. It holds an empty file for each
// runner consumer that was recreated to begin after the last message, so that it skips the start
// messages of unfinished executions. The file is kept until the executor has redelivered them.
const skippingConsumersFolder = "passed-over"

// skippingConsumerFile returns the path of a consumer's file in skippingConsumersFolder. The file
// is named CONSUMER, or STREAM.CONSUMER if the consumer is not on the shared stream.
func skippingConsumerFile(dataDir string, c executor.SkippingConsumer) string {
	name := c.Consumer
	if c.Stream != stream.ExecutionsName {
		name = c.Stream + "." + c.Consumer
	}
	return filepath.Join(dataDir, skippingConsumersFolder, name)
}

func recordSkippingConsumer(dataDir string, c executor.SkippingConsumer) error {
	if err := durable.MkdirAll(filepath.Join(dataDir, skippingConsumersFolder), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(skippingConsumerFile(dataDir, c), nil, 0o600)
}

// skippingConsumers returns the consumers that have a file in skippingConsumersFolder.
func skippingConsumers(dataDir string) (skipping []executor.SkippingConsumer, err error) {
	files, err := os.ReadDir(filepath.Join(dataDir, skippingConsumersFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, file := range files {
		streamName, consumer, ok := strings.Cut(file.Name(), ".")
		if !ok {
			streamName, consumer = stream.ExecutionsName, file.Name()
		}
		if strings.HasPrefix(consumer, stream.RunnerConsumerPrefix) {
			skipping = append(skipping,
				executor.SkippingConsumer{Stream: streamName, Consumer: consumer})
		}
	}
	return skipping, err
}

// forgetSkippingConsumer removes a consumer's file from skippingConsumersFolder.
func forgetSkippingConsumer(dataDir string, c executor.SkippingConsumer) error {
	return os.Remove(skippingConsumerFile(dataDir, c))
}

// maxMessageBytes returns the maximum message size in bytes: NATS's default of 1 MiB, or more if
// larger bodies are allowed, up to 64 MiB.
func maxMessageBytes(maxBody int64) int32 {
	const standard, overhead, largest = 1 << 20, 64 << 10, 64 << 20
	return int32(min(max(standard, maxBody+overhead), largest))
}
