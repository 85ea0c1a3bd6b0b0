package edit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	hookstartv1 "github.com/hookstart/hookstart/proto/hookstart/v1"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/internal/retry"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// Resealed says what Reseal has done.
type Resealed struct {
	Read    int // records that were looked at
	Written int // records that were sealed anew; the others hold no secret, or were sealed with the first key already
}

// Reseal seals every token, sample payload and sender's secret with the first of keys, those in clear too.
// Executors and ingresses may run meanwhile; they need the keys from before, and the first. It stops at the
// first record that cannot be opened; what was done until then stays, and it can be called again. progress is
// called after each record.
func Reseal(ctx context.Context, js jetstream.JetStream, keys *seal.Keys, progress func(Resealed)) (Resealed, error) {
	var done Resealed
	for _, bucket := range []struct {
		name   string
		anew   func(keys *seal.Keys, key string, data []byte) (proto.Message, error)
		prefix string
	}{
		{registry.SecretsBucket, resealTrigger, ""},
		{registry.Bucket, resealWorkflow, registry.WorkflowPrefix},
	} {
		kv, err := js.KeyValue(ctx, bucket.name)
		if err != nil {
			return done, fmt.Errorf("bucket %s: %w", bucket.name, err)
		}
		list, err := kv.ListKeys(ctx)
		if err != nil {
			return done, fmt.Errorf("list %s: %w", bucket.name, err)
		}
		for key := range list.Keys() {
			if !strings.HasPrefix(key, bucket.prefix) {
				continue
			}
			written, err := resealRecord(ctx, kv, key, func(data []byte) (proto.Message, error) { return bucket.anew(keys, key, data) })
			if err != nil {
				_ = list.Stop()
				return done, fmt.Errorf("seal %s %s: %w", bucket.name, key, err)
			}
			done.Read++
			if written {
				done.Written++
			}
			progress(done)
		}
	}
	return done, ctx.Err()
}

// resealRecord replaces one record, over and over until nobody else was faster.
func resealRecord(ctx context.Context, kv jetstream.KeyValue, key string, anew func(data []byte) (proto.Message, error)) (written bool, err error) {
	for attempt := 0; ; attempt++ {
		entry, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return false, nil // it was deleted meanwhile
		}
		if err != nil {
			return false, err
		}
		record, err := anew(entry.Value())
		if err != nil || record == nil {
			return false, err
		}
		data, err := proto.Marshal(record)
		if err != nil {
			return false, err
		}
		_, err = kv.Update(ctx, key, data, entry.Revision())
		if err = conflict(err, key); !errors.Is(err, errRetry) {
			return err == nil, err
		}
		if err := retry.Pause(ctx, attempt); err != nil {
			return false, err
		}
	}
}

// resealTrigger returns nil if there is nothing to do.
func resealTrigger(keys *seal.Keys, key string, data []byte) (proto.Message, error) {
	stored := &hookstartv1.TriggerSecrets{}
	if err := proto.Unmarshal(data, stored); err != nil {
		return nil, err
	}
	if keys.IsCurrent(stored.GetSealed()) {
		return nil, nil //nolint:nilnil // nothing to do
	}
	workflowID, nodeID, _ := strings.Cut(key, ".")
	secrets, err := openTrigger(keys, workflowID, nodeID, data)
	if err != nil {
		return nil, err
	}
	return sealTrigger(keys, workflowID, nodeID, secrets)
}

// resealWorkflow returns nil if there is nothing to do.
func resealWorkflow(keys *seal.Keys, key string, data []byte) (proto.Message, error) {
	w := &hookstartv1.Workflow{}
	if err := proto.Unmarshal(data, w); err != nil {
		return nil, err
	}
	workflowID, changed := strings.TrimPrefix(key, registry.WorkflowPrefix), false
	anew := func(box []byte, about string) ([]byte, error) {
		if len(box) == 0 || keys.IsCurrent(box) {
			return box, nil
		}
		changed = true
		text, err := keys.Open(box, about)
		if err != nil {
			return nil, err
		}
		return keys.Seal(text, about)
	}
	for _, node := range w.GetTriggers() {
		for _, s := range node.GetSender().GetSecrets() {
			var err error
			if s.Sealed, err = anew(s.GetSealed(), registry.AboutSecret(workflowID, node.GetNodeId(), s.GetId())); err != nil {
				return nil, err
			}
		}
		settings := node.GetSender().GetSealedSettings()
		for name, box := range settings {
			var err error
			if settings[name], err = anew(box, registry.AboutSetting(workflowID, node.GetNodeId(), name)); err != nil {
				return nil, err
			}
		}
	}
	if !changed {
		return nil, nil //nolint:nilnil // nothing to do
	}
	return w, nil
}
