package stream

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// AccountStorageSubject is the core NATS subject on which executors report to ingresses how much
// each account stores in a stream.
const AccountStorageSubject = "hookstart.storage"

// AccountStorageConsumerName is the name of a consumer that an executor uses to read the headers of
// all messages of a stream, in order to add up how much each account stores. It does not affect the
// runners' consumers.
const AccountStorageConsumerName = "storage"

// MaxReportedAccounts is the maximum number of accounts in a message on AccountStorageSubject. If
// there are more, those that store the least are omitted, so that the message does not exceed the
// maximum size that the server accepts.
const MaxReportedAccounts = 5000

// messageOverhead is the number of bytes that the server stores for a message in addition to its
// subject, headers and data (fileStoreMsgSizeRaw of nats-server 2.15.2).
const messageOverhead = 22 + 4 + 8

// StoredSize returns the number of bytes that a message adds to its stream. The message must have
// headers, and dataBytes is the length of its data.
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

// EncodeAccountStorage encodes how many bytes each account stores in a stream. sums is keyed by
// account ID; only the MaxReportedAccounts largest sums are encoded.
func EncodeAccountStorage(streamName string, sums map[string]int64) ([]byte, error) {
	message := &hookstartv1.StreamStorage{Stream: streamName}
	for id, bytes := range sums {
		account := &hookstartv1.AccountStorage{AccountId: id, Bytes: bytes}
		message.Accounts = append(message.Accounts, account)
	}
	slices.SortFunc(message.Accounts, func(a, b *hookstartv1.AccountStorage) int {
		return cmp.Compare(b.GetBytes(), a.GetBytes())
	})
	message.Accounts = message.Accounts[:min(len(message.Accounts), MaxReportedAccounts)]
	return proto.Marshal(message)
}

// DecodeAccountStorage decodes the result of EncodeAccountStorage. Its errors wrap ErrUnreadable.
func DecodeAccountStorage(data []byte) (streamName string, sums map[string]int64, err error) {
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

// DeliveryIDCopyConsumerName is the name of a consumer that an executor uses to read the delivery
// IDs of a stream when a queue or a workflow moves to another stream. It does not affect the
// runners' consumers.
const DeliveryIDCopyConsumerName = "move"
