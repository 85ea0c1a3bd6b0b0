// Package registry holds what may start executions: accounts, plans, workflows,
// trigger nodes and their tokens.
//
// The records live in a JetStream KV bucket, the source of truth. Editor changes
// them; Follow brings every change, in order, to a Sink: the Snapshot that ingress
// reads without a lock, and the Directory that the operators' API reads. A change
// counts as done only when every live follower has applied it: see Roll.
//
// The tokens themselves, and the sample payloads, are in a second bucket that
// ingress may not read. In the first there are only hashes.
package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
)

// The buckets.
const (
	Bucket        = "registry"
	SecretsBucket = "registry_secrets"
)

// stream is the name of the stream behind Bucket.
const stream = "KV_" + Bucket

// Streams are the names of the streams behind the buckets.
func Streams() []string { return []string{"KV_" + Bucket, "KV_" + SecretsBucket} }

const (
	plansKey       = "plans"
	accountPrefix  = "account."
	workflowPrefix = "workflow."
)

func secretsKey(workflowID, nodeID string) string { return workflowID + "." + nodeID }

// EnsureBuckets creates the buckets that do not exist yet. It leaves existing ones
// as they are.
func EnsureBuckets(ctx context.Context, js jetstream.JetStream, replicas int) error {
	for _, bucket := range []struct{ name, description string }{
		{Bucket, "hookstart: accounts, plans, workflows"},
		{SecretsBucket, "hookstart: tokens and sample payloads"},
	} {
		_, err := js.KeyValue(ctx, bucket.name)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
				Bucket: bucket.name, Description: bucket.description,
				History: 1, Storage: jetstream.FileStorage, Replicas: replicas,
			})
			if errors.Is(err, jetstream.ErrBucketExists) {
				err = nil // another executor was first
			}
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
	}
	return nil
}

// Wait waits until the buckets exist: the executor creates them.
func Wait(ctx context.Context, js jetstream.JetStream) error {
	return ask(ctx, func(ctx context.Context) error {
		_, err := js.KeyValue(ctx, Bucket)
		return err
	})
}

// Change is one record of the registry as it is since a revision. Exactly one of the
// records, or of the deleted IDs, is set.
type Change struct {
	Revision uint64
	// At is when the server stored it.
	At time.Time

	Plans    *hookstartv1.PlanCatalog
	Account  *hookstartv1.Account
	Workflow *hookstartv1.Workflow

	DeletedAccount  string
	DeletedWorkflow string
}

// decodeChange reads a message of the bucket's stream.
func decodeChange(subject string, deleted bool, revision uint64, at time.Time, data []byte) (Change, error) {
	c := Change{Revision: revision, At: at}
	key := strings.TrimPrefix(subject, "$KV."+Bucket+".")
	switch {
	case key == plansKey:
		c.Plans = &hookstartv1.PlanCatalog{}
		return c, proto.Unmarshal(data, c.Plans)
	case strings.HasPrefix(key, accountPrefix):
		if deleted {
			c.DeletedAccount = strings.TrimPrefix(key, accountPrefix)
			return c, nil
		}
		c.Account = &hookstartv1.Account{}
		return c, proto.Unmarshal(data, c.Account)
	case strings.HasPrefix(key, workflowPrefix):
		if deleted {
			c.DeletedWorkflow = strings.TrimPrefix(key, workflowPrefix)
			return c, nil
		}
		c.Workflow = &hookstartv1.Workflow{}
		return c, proto.Unmarshal(data, c.Workflow)
	default:
		return c, fmt.Errorf("no such kind of key: %.80q", key)
	}
}
