package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/sirupsen/logrus"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/retry"
)

// ResealResult counts the records that Reseal has processed.
type ResealResult struct {
	RecordsRead int // number of records that Reseal has read
	// RecordsWritten is the number of records that were encrypted again. The others contain no
	// secret or were already encrypted with the first key.
	RecordsWritten int
}

// Reseal encrypts every token, sample payload and sender's secret with the first key in keys,
// including those that are not encrypted yet. Executors and ingresses may keep running if they have
// both the earlier keys and the first one. Reseal stops at the first record that it cannot decrypt.
// The records before it stay encrypted with the first key, and Reseal can be called again. It calls
// progress after each workflow. It needs only the NATS permissions of an executor.
func Reseal(
	ctx context.Context, js jetstream.JetStream, keys *seal.Keys, log logrus.FieldLogger,
	progress func(ResealResult),
) (done ResealResult, err error) {
	index := NewRegistryIndex(nil) // only used to list the records
	follower, err := consistency.Follow(ctx, js, index, log)
	if err != nil {
		return done, err
	}
	defer follower.Stop()
	if err := follower.CatchUp(ctx); err != nil {
		return done, err
	}
	records, err := js.KeyValue(ctx, registry.Bucket)
	if err != nil {
		return done, fmt.Errorf("bucket %s: %w", registry.Bucket, err)
	}
	secrets, err := js.KeyValue(ctx, registry.SecretsBucket)
	if err != nil {
		return done, fmt.Errorf("bucket %s: %w", registry.SecretsBucket, err)
	}
	const page = 1000
	for list := index.Workflows("", "", page); len(list) > 0; list = index.Workflows("",
		list[len(list)-1].ID, page) {
		for _, w := range list {
			reseal := func(data []byte) (registry.Record, error) {
				return resealWorkflow(keys, w.ID, data)
			}
			key := registry.WorkflowPrefix + w.ID
			if err := done.countRecord(resealRecord(ctx, records, key, reseal)); err != nil {
				return done, fmt.Errorf("seal the senders of workflow %q: %w", w.ID, err)
			}
			for _, node := range w.Triggers {
				reseal := func(data []byte) (registry.Record, error) {
					return resealTriggerSecrets(keys, w.ID, node.NodeID, data)
				}
				key := secretsKey(w.ID, node.NodeID)
				if err := done.countRecord(resealRecord(ctx, secrets, key, reseal)); err != nil {
					return done, fmt.Errorf("seal the tokens of trigger node %q of workflow %q: %w",
						node.NodeID, w.ID, err)
				}
			}
			progress(done)
		}
	}
	return done, nil
}

// maxDecryptionTrialNodes is the maximum number of nodes whose tokens CountDecryptableSecrets tries
// to decrypt, because reading the tokens of every node would take too long.
const maxDecryptionTrialNodes = 1_000

// CountDecryptableSecrets counts how many secrets the editor's keys can decrypt. It tries to
// decrypt the secrets of all senders, and the tokens and sample payloads of at most
// maxDecryptionTrialNodes nodes. After each workflow's senders and after each node, it calls enough
// with the counts so far. If enough returns true, it stops.
func (e *Editor) CountDecryptableSecrets(
	ctx context.Context, enough func(registry.DecryptionCounts) bool,
) (found registry.DecryptionCounts, err error) {
	const page = 1000
	read := 0
	for list := e.index.Workflows("", "", page); len(list) > 0; list = e.index.Workflows("",
		list[len(list)-1].ID, page) {
		for _, w := range list {
			if found.CountWorkflowSecrets(e.keys, w); enough(found) {
				return found, nil
			}
			for _, node := range w.Triggers {
				if read++; read > maxDecryptionTrialNodes {
					break
				}
				if err := e.countDecryptableTokens(ctx, w.ID, node.NodeID, &found); err != nil {
					return found, err
				}
				if enough(found) {
					return found, nil
				}
			}
		}
	}
	return found, nil
}

// countDecryptableTokens tries to decrypt the tokens and the sample payload of a node, which are
// encrypted together, and counts the result in found. It counts nothing if they are not encrypted.
func (e *Editor) countDecryptableTokens(
	ctx context.Context, workflowID, nodeID string, found *registry.DecryptionCounts,
) error {
	record, err := e.secrets.Get(ctx, secretsKey(workflowID, nodeID))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil // the record was deleted after the workflows were listed
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", registry.SecretsBucket, err)
	}
	stored, err := registry.DecodeTriggerSecrets(record.Value())
	if err == nil && len(stored.SealedContent) > 0 {
		_, err = e.keys.Open(stored.SealedContent,
			registry.TriggerSecretsSealPurpose(workflowID, nodeID))
		found.CountResult(err)
	}
	return nil
}

// countRecord adds the result of resealRecord for one record: the record counts as read, and also
// as written if written is true. If err is not nil, countRecord adds nothing and returns err.
func (r *ResealResult) countRecord(written bool, err error) error {
	if err != nil {
		return err
	}
	r.RecordsRead++
	if written {
		r.RecordsWritten++
	}
	return nil
}

// resealRecord replaces the record under key with the result of reseal, which receives the encoded
// record. If reseal returns nil, resealRecord leaves the record unchanged. If a concurrent change
// is stored first, it tries again. written reports whether it has replaced the record.
func resealRecord(
	ctx context.Context, kv jetstream.KeyValue, key string,
	reseal func(data []byte) (registry.Record, error),
) (written bool, err error) {
	for attempt := 0; ; attempt++ {
		entry, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return false, nil // the record was deleted after the workflows were listed
		}
		if err != nil {
			return false, err
		}
		record, err := reseal(entry.Value())
		if err != nil || record == nil {
			return false, err
		}
		data, err := record.Encode()
		if err != nil {
			return false, err
		}
		_, err = kv.Update(ctx, key, data, entry.Revision())
		if err = classifyWriteError(err, key); !errors.Is(err, errRetry) {
			return err == nil, err
		}
		if err := retry.SleepBackoff(ctx, attempt); err != nil {
			return false, err
		}
	}
}

// resealTriggerSecrets returns the new record of a node's secrets, encrypted with the first key, or
// nil if the record is already encrypted with that key.
func resealTriggerSecrets(
	keys *seal.Keys, workflowID, nodeID string, data []byte,
) (registry.Record, error) {
	stored, err := registry.DecodeTriggerSecrets(data)
	if err != nil {
		return nil, err
	}
	if keys.IsSealedWithCurrentKey(stored.SealedContent) {
		return nil, nil //nolint:nilnil // nothing to do
	}
	secrets, err := openTriggerSecrets(keys, workflowID, nodeID, data)
	if err != nil {
		return nil, err
	}
	return sealTriggerSecrets(keys, workflowID, nodeID, secrets)
}

// resealWorkflow returns the new record of a workflow, in which the secrets of the senders are
// encrypted with the first key. It returns nil if they already are, or if there are none.
func resealWorkflow(keys *seal.Keys, workflowID string, data []byte) (registry.Record, error) {
	w, err := registry.DecodeWorkflow(data)
	if err != nil {
		return nil, err
	}
	changed := false
	anew := func(box []byte, about string) ([]byte, error) {
		if len(box) == 0 || keys.IsSealedWithCurrentKey(box) {
			return box, nil
		}
		changed = true
		text, err := keys.Open(box, about)
		if err != nil {
			return nil, err
		}
		return keys.Seal(text, about)
	}
	for _, node := range w.Triggers {
		if node.Sender == nil {
			continue
		}
		for i, s := range node.Sender.Secrets {
			if node.Sender.Secrets[i].SealedText, err = anew(s.SealedText,
				registry.SenderSecretSealPurpose(workflowID, node.NodeID, s.ID)); err != nil {
				return nil, err
			}
		}
		settings := node.Sender.SealedSettings
		for name, box := range settings {
			if settings[name], err = anew(box,
				registry.SenderSettingSealPurpose(workflowID, node.NodeID, name)); err != nil {
				return nil, err
			}
		}
	}
	if !changed {
		return nil, nil //nolint:nilnil // nothing to do
	}
	return w, nil
}
