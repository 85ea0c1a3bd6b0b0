package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/retry"
)

// TokenInfo describes a valid token of a node.
type TokenInfo struct {
	Token     string // the text of the token
	ID        string // the ID of its registry.TokenHash
	CreatedAt time.Time
	ExpiresAt time.Time // the zero time means never
}

// TriggerInfo describes a trigger node, including its secrets.
type TriggerInfo struct {
	Workflow      *registry.Workflow
	NodeID        string
	Name          string
	Tokens        []TokenInfo        // the valid tokens, newest first
	Sender        *SenderInfo        // nil means that the node has no sender
	SamplePayload []byte             // nil means that the node has none
	RateLimit     registry.RateLimit // the rate limit in force

	TriggerSettings
}

// Trigger returns a trigger node with its valid tokens, its sender and its sample payload.
func (e *Editor) Trigger(ctx context.Context, workflowID, nodeID string) (*TriggerInfo, error) {
	w, node, secrets, err := e.readTrigger(ctx, workflowID, nodeID)
	if err != nil {
		return nil, err
	}
	info := &TriggerInfo{
		Workflow:        w,
		NodeID:          nodeID,
		Name:            node.Name,
		Sender:          senderInfo(w, node, e.now()),
		SamplePayload:   secrets.SamplePayload,
		TriggerSettings: triggerSettingsOf(node),
	}
	if view, ok := e.index.Lookup(workflowID); ok && view.Plan != nil {
		info.RateLimit = view.RateLimit()
	}
	known := tokensByHash(secrets)
	for _, hash := range unexpiredTokens(node.Tokens, e.now()) {
		t, ok := known[hash.Hash]
		if !ok {
			continue
		}
		token := TokenInfo{
			Token:     t.Text,
			ID:        hash.Hash.ID(),
			CreatedAt: t.CreatedAt,
			ExpiresAt: hash.Expiry(),
		}
		info.Tokens = append(info.Tokens, token)
	}
	return info, nil
}

// missingTokenTextTimeout is how long readTrigger waits for the text of a token whose hash it has
// already read. A server that has just become the leader needs a moment to apply what its
// predecessor confirmed.
const missingTokenTextTimeout = 2 * time.Second

// readTrigger returns a workflow, one of its trigger nodes, and the node's secrets.
//
// The text of a token is stored before its hash. So if the newest token has a hash but no text, the
// server that responded has probably just become the leader, and has not applied every confirmed
// write yet. readTrigger then reads again for up to 2 s. If the text is still missing, it is lost,
// and readTrigger returns the secrets without it. It need not check the older tokens, because all
// texts of a node are in one record.
func (e *Editor) readTrigger(ctx context.Context, workflowID, nodeID string) (
	*registry.Workflow, *registry.Trigger, *registry.TriggerSecrets, error,
) {
	until := time.Now().Add(missingTokenTextTimeout)
	for attempt := 1; ; attempt++ {
		if err := e.EnsureCurrent(ctx); err != nil {
			return nil, nil, nil, err
		}
		w, node, err := e.findTrigger(workflowID, nodeID)
		if err != nil {
			return nil, nil, nil, err
		}
		secrets, _, err := e.readSecrets(ctx, workflowID, nodeID)
		if err != nil {
			return nil, nil, nil, err
		}
		missing := len(node.Tokens) > 0 && node.Tokens[0].IsValid(e.now()) &&
			tokensByHash(secrets)[node.Tokens[0].Hash].Text == ""
		left := time.Until(until)
		if !missing || left <= 0 {
			return w.Record, node, secrets, nil
		}
		retry.Sleep(ctx, min(retry.Backoff(attempt), left))
		if err := ctx.Err(); err != nil {
			return nil, nil, nil, err
		}
	}
}

func tokensByHash(secrets *registry.TriggerSecrets) map[registry.TokenHash]registry.Token {
	known := map[registry.TokenHash]registry.Token{}
	for _, t := range secrets.Tokens {
		known[registry.HashToken(t.Text)] = t
	}
	return known
}

func (e *Editor) findTrigger(
	workflowID, nodeID string,
) (Versioned[*registry.Workflow], *registry.Trigger, error) {
	w, ok := e.index.Workflow(workflowID)
	if !ok {
		return w, nil, workflowNotFound(workflowID)
	}
	node := w.Record.Trigger(nodeID)
	if node == nil {
		return w, nil, &NotFoundError{
			fmt.Sprintf("trigger node %q of workflow %q", nodeID, workflowID),
		}
	}
	return w, node, nil
}

// RotateToken adds a new token to a node. The old tokens expire after keepOld, unless they expire
// earlier anyway.
func (e *Editor) RotateToken(
	ctx context.Context, workflowID, nodeID string, keepOld time.Duration,
) error {
	if keepOld < 0 || keepOld > MaxOldTokenLifetime {
		return &InvalidFieldError{
			"keepOldForSeconds", fmt.Sprintf("must be 0 to %d",
				int64(MaxOldTokenLifetime/time.Second)),
		}
	}
	return e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, before, err := e.findTrigger(workflowID, nodeID)
		if err == nil {
			err = checkWorkflowPreconditions(ctx, have.Record)
		}
		if err != nil {
			return 0, err
		}
		w := have.Record.Clone()
		node := w.Trigger(nodeID)
		now := e.now()
		var old []registry.HashedToken
		if keepOld > 0 {
			old = unexpiredTokens(node.Tokens, now)
		}
		if len(old) >= MaxTokensPerNode {
			return 0,
				fmt.Errorf("%w (%d); rotate once with keepOldForSeconds 0 to end them",
					ErrTooManyTokens, len(old))
		}
		end := now.Add(keepOld).UnixNano()
		for i := range old {
			if old[i].ExpiresAt == 0 || old[i].ExpiresAt > end {
				old[i].ExpiresAt = end
			}
		}
		token, err := e.addToken(ctx, workflowID, nodeID, before.Tokens)
		if err != nil {
			return 0, err
		}
		node.Tokens = append([]registry.HashedToken{{Hash: registry.HashToken(token.Text)}}, old...)
		w.UpdatedAt = now
		return e.put(ctx, e.registry, registry.WorkflowPrefix+workflowID, w, have.Revision)
	})
}

// unexpiredTokens returns the tokens that have not expired at now.
func unexpiredTokens(tokens []registry.HashedToken, now time.Time) []registry.HashedToken {
	var list []registry.HashedToken
	for _, t := range tokens {
		if t.IsValid(now) {
			list = append(list, t)
		}
	}
	return list
}

type sampleConditionKey struct{}

// WithSampleCondition returns a context for a conditional SetSamplePayload. The change calls check
// with the existing sample payload, or with nil if there is none. If check returns an error, the
// change fails with that error, unless the payload is already as requested. check may be called
// more than once.
func WithSampleCondition(ctx context.Context, check func(sample []byte) error) context.Context {
	return context.WithValue(ctx, sampleConditionKey{}, check)
}

// SetSamplePayload stores a node's sample payload, which must be a single JSON value. It does not
// change the workflow's UpdatedAt, but the condition of WithUpdatedAtCondition applies to it.
func (e *Editor) SetSamplePayload(
	ctx context.Context, workflowID, nodeID string, sample []byte,
) error {
	if err := e.follower.CatchUp(ctx); err != nil {
		return err
	}
	have, _, err := e.findTrigger(workflowID, nodeID)
	if err != nil {
		return err
	}
	if err := checkSample("body", sample); err != nil {
		return err
	}
	if err := checkWorkflowPreconditions(ctx, have.Record); err != nil {
		return err
	}
	stored := newestStoredRevisions{}
	if err := e.storeSample(
		context.WithValue(ctx, newestStoredRevisionsKey{}, stored),
		workflowID,
		nodeID,
		sample,
	); err != nil {
		return err
	}
	return e.awaitDatabaseCopy(ctx, stored)
}

// storeSample stores the sample payload of an existing node, or deletes it if sample is nil. It
// also stores an audit entry. If the payload is unchanged, storeSample writes nothing.
func (e *Editor) storeSample(ctx context.Context, workflowID, nodeID string, sample []byte) error {
	have, _, err := e.readSecrets(ctx, workflowID, nodeID)
	if err != nil {
		return err
	}
	if bytes.Equal(have.SamplePayload, sample) {
		return nil
	}
	entry := NewAuditEntry(ActorOf(ctx), actionSamplePayloadSet)
	if sample == nil {
		entry.Action = actionSamplePayloadDelete
	}
	entry.WorkflowID, entry.NodeID = workflowID, nodeID
	if w, ok := e.index.Workflow(workflowID); ok {
		entry.AccountID = w.Record.AccountID
	}
	changed := FieldChange{Field: "samplePayload"}
	if have.SamplePayload != nil {
		changed.From = redactedValue
	}
	if sample != nil {
		changed.To = redactedValue
	}
	entry.Changes = []FieldChange{changed}
	return e.changeSecrets(context.WithValue(ctx, auditEntryKey{}, entry), workflowID, nodeID,
		func(s *registry.TriggerSecrets) { s.SamplePayload = sample })
}

// addToken creates a token and adds its text to a node's secrets. before holds the hashes in the
// node's record: see appendTokenAndPrune.
func (e *Editor) addToken(
	ctx context.Context, workflowID, nodeID string, before []registry.HashedToken,
) (registry.Token, error) {
	token := e.newToken()
	err := e.changeSecrets(ctx, workflowID, nodeID, func(s *registry.TriggerSecrets) {
		e.appendTokenAndPrune(s, token, before)
	})
	return token, err
}

func (e *Editor) newToken() registry.Token {
	return registry.Token{Text: registry.NewToken(), CreatedAt: e.now()}
}

// appendTokenAndPrune adds a token to a node's secrets, and removes the tokens whose hashes are not
// in before. It keeps tokens that are less than a minute old, because another process may be about
// to store their hashes in the registry, or may not know whether it has stored them.
func (e *Editor) appendTokenAndPrune(
	s *registry.TriggerSecrets, token registry.Token, before []registry.HashedToken,
) {
	keep := map[registry.TokenHash]bool{}
	for _, t := range before {
		keep[t.Hash] = true
	}
	var kept []registry.Token
	for _, t := range s.Tokens {
		if keep[registry.HashToken(t.Text)] || t.CreatedAt.After(e.now().Add(-time.Minute)) {
			kept = append(kept, t)
		}
	}
	s.Tokens = append(kept, token)
}

// nodeSecrets holds the secrets of a node that is being created.
type nodeSecrets struct {
	nodeID string
	token  registry.Token
	sample []byte // nil means that no sample payload was given
}

// createNodeSecrets stores a token and the sample payload of a new node. sample may be nil. No
// audit entry is stored, because the entry for the node covers the payload. createNodeSecrets
// replaces secrets that remain from an earlier node with the same name: deleting a node takes two
// writes, and the second one, which deletes the secrets, may have failed.
func (e *Editor) createNodeSecrets(
	ctx context.Context, workflowID, nodeID string, sample []byte,
) (nodeSecrets, error) {
	created := nodeSecrets{nodeID, e.newToken(), sample}
	last, err := newestRevision(ctx, e.js, registry.SecretsBucket, secretsKey(workflowID, nodeID))
	if err != nil {
		return created, err
	}
	// Either a deleted node has left these secrets behind, or another call has just created the
	// node.
	if last != nil && !last.deleted {
		if err := e.follower.CatchUp(ctx); err != nil {
			return created, err
		}
		if _, _, err := e.findTrigger(workflowID, nodeID); err == nil {
			return created, errRetry
		}
	}
	err = e.changeSecrets(ctx, workflowID, nodeID, func(s *registry.TriggerSecrets) {
		e.appendTokenAndPrune(s, created.token, nil)
		s.SamplePayload = sample
	})
	return created, err
}

// guardNewSecretsAgainstDeletion stores the secrets of new nodes a second time, once the workflow's
// record contains the nodes. This protects them from a concurrent deletion of an earlier node with
// the same name. If the deletion has already removed the new secrets, they are restored. Otherwise,
// their revision changes, which makes the deletion fail.
func (e *Editor) guardNewSecretsAgainstDeletion(
	ctx context.Context, workflowID string, added []nodeSecrets,
) error {
	for _, node := range added {
		err := e.changeSecrets(ctx, workflowID, node.nodeID, func(s *registry.TriggerSecrets) {
			if !slices.ContainsFunc(s.Tokens, func(t registry.Token) bool {
				return t.Text == node.token.Text
			}) {
				s.Tokens = append(s.Tokens, node.token)
			}
			if s.SamplePayload == nil {
				s.SamplePayload = node.sample
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// The audit actions for setting and for deleting a sample payload.
const (
	actionSamplePayloadSet    = "sample-payload.set"
	actionSamplePayloadDelete = "sample-payload.delete"
)

// secretsKey returns the key of a node's secrets in registry.SecretsBucket.
func secretsKey(workflowID, nodeID string) string { return workflowID + "." + nodeID }

// readSecrets returns the secrets of a node and the revision of their record. It returns empty
// secrets and revision 0 if the record does not exist.
func (e *Editor) readSecrets(
	ctx context.Context, workflowID, nodeID string,
) (*registry.TriggerSecrets, uint64, error) {
	secrets := &registry.TriggerSecrets{}
	last, err := newestRevision(ctx, e.js, registry.SecretsBucket, secretsKey(workflowID, nodeID))
	if err == nil && (last == nil || last.deleted) {
		return secrets, 0, nil
	}
	if err == nil {
		secrets, err = openTriggerSecrets(e.keys, workflowID, nodeID, last.data)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the secrets of %s: %w", secretsKey(workflowID, nodeID), err)
	}
	return secrets, last.revision, nil
}

// openTriggerSecrets decodes the record of a node's secrets, and decrypts it if it is encrypted.
func openTriggerSecrets(
	keys *seal.Keys, workflowID, nodeID string, data []byte,
) (*registry.TriggerSecrets, error) {
	stored, err := registry.DecodeTriggerSecrets(data)
	if err != nil || len(stored.SealedContent) == 0 {
		return stored, err
	}
	opened, err := keys.Open(stored.SealedContent,
		registry.TriggerSecretsSealPurpose(workflowID, nodeID))
	if err != nil {
		return nil, err
	}
	return registry.DecodeTriggerSecrets(opened)
}

// sealTriggerSecrets encodes the secrets of a node for storage, encrypted if keys has a key.
func sealTriggerSecrets(
	keys *seal.Keys, workflowID, nodeID string, secrets *registry.TriggerSecrets,
) (*registry.TriggerSecrets, error) {
	if !keys.CanSeal() {
		return secrets, nil
	}
	data, err := secrets.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the secrets of %s: %w", secretsKey(workflowID, nodeID), err)
	}
	box, err := keys.Seal(data, registry.TriggerSecretsSealPurpose(workflowID, nodeID))
	return &registry.TriggerSecrets{SealedContent: box}, err
}

// changeSecrets reads a node's secrets, lets edit change them, and stores the result. If a
// concurrent change is stored first, it starts again, so edit may be called more than once.
func (e *Editor) changeSecrets(
	ctx context.Context, workflowID, nodeID string, edit func(*registry.TriggerSecrets),
) error {
	for attempt := 0; ; attempt++ {
		secrets, revision, err := e.readSecrets(ctx, workflowID, nodeID)
		if err != nil {
			return err
		}
		if check, ok := ctx.Value(sampleConditionKey{}).(func([]byte) error); ok {
			if err := check(secrets.SamplePayload); err != nil {
				return err
			}
		}
		edit(secrets)
		stored, err := sealTriggerSecrets(e.keys, workflowID, nodeID, secrets)
		if err != nil {
			return err
		}
		_, err = e.put(ctx, e.secrets, secretsKey(workflowID, nodeID), stored, revision)
		if !errors.Is(err, errRetry) {
			return err
		}
		if err := retry.SleepBackoff(ctx, attempt); err != nil {
			return err
		}
	}
}

// The maximum time for deleting the secrets of removed nodes. The context of the call that removed
// the nodes does not limit that time, because the removal is already stored.
const (
	deleteSecretsTimeout     = 5 * time.Second
	deleteNodeSecretsTimeout = 200 * time.Millisecond // added for each node
)

// deleteSecretsOfRemovedNodes deletes the secrets of the nodes that a change has removed. err is
// the result of the change. If err is nil or an UnconfirmedError, the change is stored, so the
// secrets are deleted; otherwise they are kept. deleteSecretsOfRemovedNodes returns err or, if that
// is nil, the error of the deletion.
func (e *Editor) deleteSecretsOfRemovedNodes(
	ctx context.Context,
	workflowID string,
	nodeIDs []string,
	err error,
) error {
	var unconfirmed *consistency.UnconfirmedError
	if err != nil && !errors.As(err, &unconfirmed) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		deleteSecretsTimeout+time.Duration(len(nodeIDs))*deleteNodeSecretsTimeout)
	defer cancel()
	if failed := e.deleteSecrets(ctx, workflowID, nodeIDs); err == nil {
		err = failed
	}
	return err
}

// deleteSecrets deletes the secrets of nodes that have been removed from a workflow. It keeps the
// secrets of a node that another process has created again since the removal. It continues after an
// error, and returns all errors.
func (e *Editor) deleteSecrets(ctx context.Context, workflowID string, nodeIDs []string) error {
	errs := make([]error, 0, len(nodeIDs))
	for _, nodeID := range nodeIDs {
		errs = append(errs, e.deleteNodeSecrets(ctx, workflowID, nodeID))
	}
	return errors.Join(errs...)
}

// deleteNodeSecrets is like deleteSecrets, but for a single node.
func (e *Editor) deleteNodeSecrets(ctx context.Context, workflowID, nodeID string) error {
	key := secretsKey(workflowID, nodeID)
	last, err := newestRevision(ctx, e.js, registry.SecretsBucket, key)
	if err != nil || last == nil || last.deleted {
		return err
	}
	// If the node has been created again, its secrets must be kept. In that case, either the
	// index contains the node after catching up, or the process that creates the node has yet
	// to call guardNewSecretsAgainstDeletion. That call either makes the deletion below fail, or
	// restores the secrets after the deletion.
	if err := e.follower.CatchUp(ctx); err != nil {
		return err
	}
	if _, _, err := e.findTrigger(workflowID, nodeID); err == nil {
		return nil
	}
	err = e.secrets.Delete(ctx, key, jetstream.LastRevision(last.revision))
	if err = classifyWriteError(err, key); errors.Is(err, errRetry) {
		return nil
	}
	return err
}
