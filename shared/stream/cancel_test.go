package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/stream"
)

// answers is a bucket whose Create method returns the next error in left; nil means that the key
// was created.
type answers struct {
	jetstream.KeyValue
	left []error
}

func (a *answers) Create(
	context.Context, string, []byte, ...jetstream.KVCreateOpt,
) (uint64, error) {
	err := a.left[0]
	a.left = a.left[1:]
	return 1, err
}

// errInFlight is the error that Create returns while a cluster is still storing the same key for
// another caller.
var errInFlight = fmt.Errorf("%w: %w", &jetstream.APIError{
	ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant,
}, jetstream.ErrKeyExists)

// PutCancellation succeeds once the server has stored the cancellation or has reported that one
// already exists. It tries again while a cluster is still storing another cancellation of the
// execution, because that one may be lost.
func TestACancellationIsStoredOnceItExists(t *testing.T) {
	t.Parallel()
	other := errors.New("no leader")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"it exists":                        {[]error{jetstream.ErrKeyExists}, nil},
		"the other cancellation is lost":   {[]error{errInFlight, errInFlight, nil}, nil},
		"the other cancellation is stored": {[]error{errInFlight, jetstream.ErrKeyExists}, nil},
		"another error":                    {[]error{errInFlight, other}, other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bucket := &answers{left: c.answers}
			err := stream.PutCancellation(t.Context(), bucket, "execution", time.Now())
			if !errors.Is(err, c.want) || len(bucket.left) != 0 {
				t.Errorf("%d answers left, %v", len(bucket.left), err)
			}
		})
	}
}

// PutCancellation fails if it cannot find out whether another cancellation of the execution was
// stored.
func TestACancellationThatStaysInFlightIsNotStored(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bucket := &answers{left: []error{errInFlight}}
	if err := stream.PutCancellation(ctx, bucket, "execution", time.Now()); err == nil {
		t.Error("it counts as stored")
	}
}
