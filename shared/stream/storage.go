package stream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// StorageSubject is the subject, on core NATS, of the sums of what each account holds in a stream.
// An executor sends them to the ingresses.
const StorageSubject = "hookstart.storage"

// StorageConsumer is the name of the consumer by which an executor reads the headers of all
// messages of a stream, to add up what each account holds. It takes no work.
const StorageConsumer = "storage"

// MaxStorageAccounts is the number of accounts in a message with sums. Accounts that hold less than
// these are left out, which keeps the message below the server's limit.
const MaxStorageAccounts = 5000

// messageOverhead is the number of bytes that the server stores for a message in addition to the
// subject, the headers and the data of a message (fileStoreMsgSizeRaw of nats-server 2.15.2).
const messageOverhead = 22 + 4 + 8

// StoredSize returns the number of bytes by which a message with headers makes the stream larger.
func StoredSize(subject string, header nats.Header, dataBytes int) int64 {
	const line, end = len("NATS/1.0\r\n"), len("\r\n")
	size := messageOverhead + len(subject) + line + end + dataBytes
	for name, values := range header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return int64(size)
}

// EncodeStorage encodes the sums, in bytes, of what each account holds in a stream.
func EncodeStorage(streamName string, sums map[string]int64) ([]byte, error) {
	message := &hookstartv1.StreamStorage{Stream: streamName}
	for id, bytes := range sums {
		account := &hookstartv1.AccountStorage{AccountId: id, Bytes: bytes}
		message.Accounts = append(message.Accounts, account)
	}
	slices.SortFunc(message.Accounts, func(a, b *hookstartv1.AccountStorage) int {
		return cmp.Compare(b.GetBytes(), a.GetBytes())
	})
	message.Accounts = message.Accounts[:min(len(message.Accounts), MaxStorageAccounts)]
	return proto.Marshal(message)
}

// DecodeStorage decodes sums. Its error wraps ErrUnreadable.
func DecodeStorage(data []byte) (streamName string, sums map[string]int64, err error) {
	var message hookstartv1.StreamStorage
	if err := proto.Unmarshal(data, &message); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	sums = make(map[string]int64, len(message.GetAccounts()))
	for _, a := range message.GetAccounts() {
		sums[a.GetAccountId()] = a.GetBytes()
	}
	return message.GetStream(), sums, nil
}

// MoveConsumer is the name of the consumer by which an executor reads the delivery IDs of a stream
// that a queue, or a workflow, leaves. It takes no work.
const MoveConsumer = "move"
