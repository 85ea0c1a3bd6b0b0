package edit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hookstart/hookstart/shared/filter"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/sender"
)

// SenderSpec is the sender that an operator requests for a node.
type SenderSpec struct {
	Preset string // an ID or an alias
	// Secrets holds the secrets in plain text, newest first. nil keeps the existing secrets. A
	// secret that the sender already has keeps its ID.
	Secrets []string
	// Settings replaces the existing settings. If the preset stays the same, secret settings that
	// are omitted here keep their values.
	Settings map[string]string
}

// SenderInfo describes a node's sender, without the texts of its secrets.
type SenderInfo struct {
	Workflow *registry.Workflow
	NodeID   string
	Preset   string // the ID of the preset
	// ReplacedPreset is the preset that PutSender replaced. "" means that there was none.
	ReplacedPreset string
	Secrets        []SecretInfo      // the valid secrets, newest first
	Settings       map[string]string // the settings that are not secret
}

// SecretInfo describes a secret, without its text.
type SecretInfo struct {
	ID             string
	Last4          string // last four characters; "" if the secret is too short to show them
	PublicKey      string // the text of a public key; "" means that the secret is not a public key
	NotYetRevealed bool   // from the provider, and not yet returned by RevealCapturedSecrets
	SetAt          time.Time
	ExpiresAt      time.Time // the zero time means never
}

// minSecretLengthForLast4 is the minimum length of a secret whose last four characters may be
// shown.
const minSecretLengthForLast4 = 8

// MaxOldSecretLifetime is the maximum time for which the older secrets of a sender may stay valid
// after a new one has been set.
const MaxOldSecretLifetime = MaxOldTokenLifetime

// Sender returns a node's sender, or nil if the node has none.
func (e *Editor) Sender(ctx context.Context, workflowID, nodeID string) (*SenderInfo, error) {
	if err := e.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	w, node, err := e.findTrigger(workflowID, nodeID)
	if err != nil {
		return nil, err
	}
	return senderInfo(w.Record, node, e.now()), nil
}

// DecryptedSender returns a node's sender with its secrets in plain text, or nil if the node has
// none. It fails with ErrNotFound or with the errors of seal.Keys.Open.
func (e *Editor) DecryptedSender(
	ctx context.Context, workflowID, nodeID string,
) (*sender.Config, error) {
	if err := e.EnsureCurrent(ctx); err != nil {
		return nil, err
	}
	_, node, err := e.findTrigger(workflowID, nodeID)
	if err != nil || node.Sender == nil {
		return nil, err
	}
	config, err := registry.DecryptSender(e.keys, workflowID, nodeID, node.Sender)
	return &config, err
}

// SenderPreset returns the preset of a node's sender, or "" if the node has no sender or does not
// exist.
func (e *Editor) SenderPreset(ctx context.Context, workflowID, nodeID string) (string, error) {
	info, err := e.Sender(ctx, workflowID, nodeID)
	if errors.Is(err, ErrNotFound) || err == nil && info == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return info.Preset, nil
}

func senderInfo(w *registry.Workflow, node *registry.Trigger, now time.Time) *SenderInfo {
	record := node.Sender
	if record == nil {
		return nil
	}
	info := &SenderInfo{
		Workflow: w,
		NodeID:   node.NodeID,
		Preset:   record.Preset,
		Settings: maps.Clone(record.Settings),
	}
	for _, s := range record.UnexpiredSecrets(now) {
		info.Secrets = append(info.Secrets, SecretInfo{
			ID:             s.ID,
			Last4:          s.Last4,
			PublicKey:      s.PublicKey,
			NotYetRevealed: s.NotYetRevealed,
			SetAt:          s.SetAt,
			ExpiresAt:      s.ExpiresAt,
		})
	}
	return info
}

// PutSender creates or replaces a node's sender. created reports whether the node had none before.
// The possible errors include ErrNotFound, *InvalidFieldError, ErrTooManySecrets, ErrIngressTooOld
// and seal.ErrNoKey.
func (e *Editor) PutSender(
	ctx context.Context, workflowID, nodeID string, spec SenderSpec,
) (info *SenderInfo, created bool, err error) {
	replaced := ""
	info, err = e.changeSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			if created = before == nil; !created {
				replaced = before.Preset
			}
			preset, ok := sender.LookupPreset(spec.Preset)
			if !ok {
				_, err := sender.Compile(sender.Config{Preset: spec.Preset})
				return nil, asInvalidFieldError(err)
			}
			if preset.Verifies {
				if err := e.requireCapability(consistency.CapabilitySenders); err != nil {
					return nil, err
				}
			}
			config, err := registry.DecryptSender(e.keys, workflowID, nodeID, before)
			if err != nil && (spec.Secrets == nil || !errors.Is(err, seal.ErrNoKey)) {
				return nil, err
			}
			if before == nil {
				before = &registry.Sender{}
			}
			edit := senderBuilder{
				editor:     e,
				workflowID: workflowID,
				nodeID:     nodeID,
				preset:     preset,
				before:     before,
				decrypted:  config,
			}
			if spec.Secrets != nil {
				edit.addSecrets(spec.Secrets)
			} else if preset.Verifies {
				edit.keepSecrets()
			}
			if edit.wouldRevealSecrets(spec.Secrets == nil) {
				return nil, &InvalidFieldError{
					"secrets",
					"say the secret again: requests of this preset carry it in their body, where " +
						"those see it who were never told the secret so far",
				}
			}
			return edit.buildRecord(spec.Settings)
		})
	if info != nil {
		info.ReplacedPreset = replaced
	}
	return info, created, err
}

// AddSenderSecret adds a secret to a node's sender as the newest one. The other secrets expire
// after othersExpireAfter, unless they expire earlier: 0 revokes them immediately, and nil leaves
// their expiry unchanged. The possible errors include *InvalidFieldError, ErrNotFound,
// ErrTooManySecrets and seal.ErrNoKey.
func (e *Editor) AddSenderSecret(
	ctx context.Context, workflowID, nodeID, text string, othersExpireAfter *time.Duration,
) (info *SenderInfo, err error) {
	if othersExpireAfter != nil &&
		(*othersExpireAfter < 0 || *othersExpireAfter > MaxOldSecretLifetime) {
		return nil, &InvalidFieldError{
			"endOthersAfterSeconds", fmt.Sprintf("must be 0 to %d",
				int64(MaxOldSecretLifetime/time.Second)),
		}
	}
	return e.changeExistingSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			edit, err := e.newSenderBuilder(workflowID, nodeID, before)
			if err != nil {
				return nil, err
			}
			edit.keepSecrets()
			edit.addSecret(text)
			if othersExpireAfter != nil {
				edit.expireOlderSecrets(e.now().Add(*othersExpireAfter))
			}
			return edit.buildRecord(before.Settings)
		})
}

// RemoveSenderSecret revokes one secret immediately. It fails with ErrNotFound if there is no such
// secret, and with ErrLastSecret if the sender would have no valid secret left.
func (e *Editor) RemoveSenderSecret(ctx context.Context, workflowID, nodeID, id string) error {
	_, err := e.changeSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			live := before.UnexpiredSecrets(e.now())
			at := slices.IndexFunc(live, func(s registry.SenderSecret) bool { return s.ID == id })
			switch {
			case at < 0:
				return nil, &NotFoundError{
					fmt.Sprintf("secret %q of the sender of trigger node %q of workflow %q", id,
						nodeID, workflowID),
				}
			case len(live) == 1:
				return nil, ErrLastSecret
			}
			after := before.Clone()
			after.Secrets = slices.Delete(live, at, at+1)
			return after, nil
		})
	return err
}

// RemoveSender removes the sender of a node. From then on, only the token is checked. It fails with
// ErrNotFound if the node has no sender.
func (e *Editor) RemoveSender(ctx context.Context, workflowID, nodeID string) error {
	_, err := e.changeExistingSender(ctx, workflowID, nodeID,
		func(*registry.Sender) (*registry.Sender, error) {
			return nil, nil //nolint:nilnil // no sender is what was asked for
		})
	return err
}

// CaptureSenderSecret stores a secret that a node's provider has sent, if the preset of the node's
// sender expects that and the sender has no valid secret yet. box is the secret, encrypted for
// registry.CapturedSecretSealPurpose. If CaptureSenderSecret cannot decrypt box, it does nothing,
// because an operator can make the provider send the secret again.
func (e *Editor) CaptureSenderSecret(
	ctx context.Context, workflowID, nodeID string, box []byte,
) error {
	text, err := e.keys.Open(box, registry.CapturedSecretSealPurpose(workflowID, nodeID))
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	_, err = e.changeExistingSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			edit, err := e.newSenderBuilder(workflowID, nodeID, before)
			if err != nil {
				return nil, err
			}
			if edit.preset.Secret == nil || !edit.preset.Secret.Captured ||
				len(before.UnexpiredSecrets(e.now())) > 0 {
				return before, nil
			}
			edit.addSecret(string(text))
			after, err := edit.buildRecord(before.Settings)
			if err == nil {
				after.Secrets[0].NotYetRevealed = true
			}
			return after, err
		})
	if invalid := (*InvalidFieldError)(nil); errors.Is(err, ErrNotFound) ||
		errors.As(err, &invalid) {
		return nil
	}
	return err
}

// RevealCapturedSecrets returns the secrets that a node's provider has sent, as a map from the
// secret's ID to its plain text. Each secret is returned only once: before RevealCapturedSecrets
// returns, it stores in the registry that these secrets have been revealed. If that change is
// stored but not confirmed in time, RevealCapturedSecrets returns the secrets without an error,
// because a later call would not return them.
func (e *Editor) RevealCapturedSecrets(
	ctx context.Context, workflowID, nodeID string,
) (texts map[string]string, err error) {
	_, err = e.changeExistingSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			texts = map[string]string{}
			config, err := registry.DecryptSender(e.keys, workflowID, nodeID, before)
			if err != nil {
				return nil, err
			}
			after := before.Clone()
			for i := range after.Secrets {
				if s := &after.Secrets[i]; s.NotYetRevealed {
					texts[s.ID], s.NotYetRevealed = config.Secrets[i].Text, false
				}
			}
			return after, nil
		})
	if _, unconfirmed := errors.AsType[*consistency.UnconfirmedError](err); unconfirmed {
		err = nil // a later call would not return the secrets anymore
	}
	return texts, err
}

type senderConditionKey struct{}

// WithSenderCondition returns a context for a conditional change of a node's sender. The change
// calls check with the existing sender, or with nil if there is none. If check returns an error,
// the change fails with that error, unless the sender is already as requested. check may be called
// more than once.
func WithSenderCondition(ctx context.Context, check func(*registry.Sender) error) context.Context {
	return context.WithValue(ctx, senderConditionKey{}, check)
}

// senderChangeFunc returns the new sender record, or nil to remove the sender. It must not modify
// before, which is nil if there is no sender.
type senderChangeFunc func(before *registry.Sender) (after *registry.Sender, err error)

// changeExistingSender is like changeSender, but fails with ErrNotFound if the node has no sender.
func (e *Editor) changeExistingSender(
	ctx context.Context, workflowID, nodeID string, edit senderChangeFunc,
) (*SenderInfo, error) {
	return e.changeSender(ctx, workflowID, nodeID,
		func(before *registry.Sender) (*registry.Sender, error) {
			if before == nil {
				return nil, &NotFoundError{
					fmt.Sprintf("sender at trigger node %q of workflow %q", nodeID, workflowID),
				}
			}
			return edit(before)
		})
}

// changeSender stores the sender that edit returns, and waits until it is in force.
func (e *Editor) changeSender(
	ctx context.Context, workflowID, nodeID string, edit senderChangeFunc,
) (info *SenderInfo, err error) {
	err = e.storeAndConfirm(ctx, func(ctx context.Context) (uint64, error) {
		have, before, err := e.findTrigger(workflowID, nodeID)
		if err != nil {
			return 0, err
		}
		after, err := edit(before.Sender)
		if err != nil {
			return 0, err
		}
		if after != nil && after.Equal(before.Sender) {
			info = senderInfo(have.Record, before, e.now())
			return have.Revision, errUnchanged
		}
		if err := checkWorkflowPreconditions(ctx, have.Record); err != nil {
			return 0, err
		}
		if check, ok := ctx.Value(senderConditionKey{}).(func(*registry.Sender) error); ok {
			if err := check(before.Sender); err != nil {
				return 0, err
			}
		}
		w := have.Record.Clone()
		node := w.Trigger(nodeID)
		node.Sender = after
		if shown := newlyExposedSecret(before, node); shown != nil {
			return 0, &InvalidFieldError{
				"settings.header",
				fmt.Sprintf("the node's %s uses the header %s, which would expose the secret: "+
					"choose another header, or change the %[1]s first", shown.setting,
					shown.header),
			}
		}
		w.UpdatedAt = e.now()
		info = senderInfo(w, node, e.now())
		return e.put(ctx, e.registry, registry.WorkflowPrefix+workflowID, w, have.Revision)
	})
	return info, err
}

// senderBuilder builds the new record of a node's sender from the existing one.
type senderBuilder struct {
	editor             *Editor
	workflowID, nodeID string
	preset             sender.Preset
	before             *registry.Sender // empty if there is no sender
	decrypted          sender.Config    // the decrypted configuration of before

	secrets []senderSecret // the secrets of the new record
}

// senderSecret is a secret that the new record will contain. record is its stored form in the
// existing record, or nil if the secret is new. The secret expires at expiresAt, or earlier if
// record has an earlier expiry. If record is nil and expiresAt is zero, the secret never expires.
type senderSecret struct {
	text      string
	record    *registry.SenderSecret
	expiresAt time.Time // if it is zero, the expiry in record applies
}

// newSenderBuilder decrypts the existing sender and returns a builder for a new record with the
// same preset.
func (e *Editor) newSenderBuilder(
	workflowID, nodeID string,
	before *registry.Sender,
) (*senderBuilder, error) {
	preset, ok := sender.LookupPreset(before.Preset)
	if !ok {
		return nil, &InvalidFieldError{
			"preset",
			fmt.Sprintf("this version has no preset %q: set the sender again", before.Preset),
		}
	}
	config, err := registry.DecryptSender(e.keys, workflowID, nodeID, before)
	if err != nil {
		return nil, err
	}
	return &senderBuilder{
		editor:     e,
		workflowID: workflowID,
		nodeID:     nodeID,
		preset:     preset,
		before:     before,
		decrypted:  config,
	}, nil
}

// secretText returns the plain text of the existing secret with the given ID, or "" if it could not
// be decrypted.
func (s *senderBuilder) secretText(id string) string {
	for _, opened := range s.decrypted.Secrets {
		if opened.ID == id {
			return opened.Text
		}
	}
	return ""
}

// keepSecrets adds the existing secrets to the new record, except for expired ones.
func (s *senderBuilder) keepSecrets() {
	for _, record := range s.before.UnexpiredSecrets(s.editor.now()) {
		s.secrets = append(s.secrets, senderSecret{text: s.secretText(record.ID), record: &record})
	}
}

// wouldRevealSecrets reports whether a change of the preset would let an operator read the existing
// secrets. kept states whether the new record keeps these secrets. If it does, and requests of the
// new preset contain the secret outside the headers, usually in the body, then operators could read
// the secret, because bodies are recorded. The check exists because an operator who may change a
// sender does not necessarily know its secrets.
func (s *senderBuilder) wouldRevealSecrets(kept bool) bool {
	return kept && len(s.secrets) > 0 && s.before.Preset != s.preset.ID &&
		sender.HasSecretOutsideHeaders(s.preset.ID)
}

// addSecrets adds the given secrets to the new record, in their order and without duplicates.
func (s *senderBuilder) addSecrets(texts []string) {
	for _, text := range slices.Backward(texts) {
		s.addSecret(text)
	}
}

// addSecret adds a secret at the front of the new record's secrets, without an expiry. A secret
// that the sender already has keeps its ID, but is moved to the front and no longer expires.
func (s *senderBuilder) addSecret(text string) {
	added := senderSecret{text: text}
	for _, record := range s.before.UnexpiredSecrets(s.editor.now()) {
		if text != "" && s.secretText(record.ID) == text {
			record.ExpiresAt = time.Time{}
			added.record = &record
			break
		}
	}
	s.secrets = slices.DeleteFunc(s.secrets, func(other senderSecret) bool {
		return other.text == text
	})
	s.secrets = append([]senderSecret{added}, s.secrets...)
}

// expireOlderSecrets makes all secrets of the new record except the first one expire at the given
// time, unless they expire earlier.
func (s *senderBuilder) expireOlderSecrets(at time.Time) {
	if !at.After(s.editor.now()) {
		s.secrets = s.secrets[:1]
	}
	for i := range s.secrets[1:] {
		s.secrets[1+i].expiresAt = at
	}
}

// buildRecord returns the new record, with the settings that mergeSettings returns for the given
// ones. It also compiles the new sender, so that an invalid sender is refused now, and not when its
// first delivery arrives.
func (s *senderBuilder) buildRecord(settings map[string]string) (*registry.Sender, error) {
	if len(s.secrets) > sender.MaxSecrets {
		return nil,
			fmt.Errorf("%w (%d); delete one, or end the others with endOthersAfterSeconds",
				ErrTooManySecrets, sender.MaxSecrets)
	}
	config := sender.Config{Preset: s.preset.ID, Settings: s.mergeSettings(settings)}
	for _, secret := range s.secrets {
		config.Secrets = append(config.Secrets, sender.Secret{Text: secret.text})
	}
	if _, err := sender.Compile(config); err != nil {
		return nil, asInvalidFieldError(err)
	}
	if err := sender.CheckSecretsHidden(config); err != nil {
		return nil, asInvalidFieldError(err)
	}
	after := &registry.Sender{Preset: s.preset.ID}
	for _, secret := range s.secrets {
		record, err := s.secretRecord(secret)
		if err != nil {
			return nil, err
		}
		after.Secrets = append(after.Secrets, record)
	}
	return after, s.addSettings(after, config.Settings)
}

// mergeSettings returns the settings of the new record: the given settings that are not empty, and,
// if the preset stays the same, the existing secret settings that are not in given.
func (s *senderBuilder) mergeSettings(given map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, given)
	if s.before.Preset == s.preset.ID {
		for name := range s.before.SealedSettings {
			if _, named := given[name]; !named {
				merged[name] = s.decrypted.Settings[name]
			}
		}
	}
	maps.DeleteFunc(merged, func(_, value string) bool { return value == "" })
	return merged
}

func (s *senderBuilder) secretRecord(secret senderSecret) (registry.SenderSecret, error) {
	if secret.record != nil {
		record := *secret.record
		if !secret.expiresAt.IsZero() &&
			(record.ExpiresAt.IsZero() || record.ExpiresAt.After(secret.expiresAt)) {
			record.ExpiresAt = secret.expiresAt
		}
		return record, nil
	}
	record := registry.SenderSecret{ID: rand.Text()[:12], SetAt: s.editor.now()}
	if len(secret.text) >= minSecretLengthForLast4 {
		record.Last4 = string([]rune(secret.text)[max(0, len([]rune(secret.text))-4):])
	}
	if s.preset.IsPublicKey(secret.text) {
		record.PublicKey = secret.text
		return record, nil
	}
	var err error
	record.SealedText, err = s.editor.keys.Seal([]byte(secret.text),
		registry.SenderSecretSealPurpose(s.workflowID, s.nodeID, record.ID))
	return record, err
}

// addSettings adds the settings to the new record, which is passed as into, and encrypts the
// secret ones. It reuses the encrypted values of unchanged settings, so that a repeated call
// changes nothing.
func (s *senderBuilder) addSettings(into *registry.Sender, settings map[string]string) error {
	for _, known := range s.preset.Settings {
		value, set := settings[known.Name]
		switch {
		case !set:
		case !known.Secret:
			if into.Settings == nil {
				into.Settings = map[string]string{}
			}
			into.Settings[known.Name] = value
		default:
			box := s.before.SealedSettings[known.Name]
			if box == nil || s.decrypted.Settings[known.Name] != value {
				purpose := registry.SenderSettingSealPurpose(s.workflowID, s.nodeID, known.Name)
				var err error
				if box, err = s.editor.keys.Seal([]byte(value), purpose); err != nil {
					return err
				}
			}
			if into.SealedSettings == nil {
				into.SealedSettings = map[string][]byte{}
			}
			into.SealedSettings[known.Name] = box
		}
	}
	return nil
}

// asInvalidFieldError converts a *sender.ConfigError to an InvalidFieldError. It returns other
// errors unchanged.
func asInvalidFieldError(err error) error {
	if config, ok := errors.AsType[*sender.ConfigError](err); ok {
		return &InvalidFieldError{config.Field, config.Detail}
	}
	return err
}

// exposedSecretHeader names a header that contains the secret of a node's sender, and the setting
// that would show the header's value to operators: orderKey or filter.
type exposedSecretHeader struct{ setting, header string }

// newlyExposedSecret returns a header that contains the sender's secret and that the order key or
// the filter of after uses, or nil if there is none. before is the existing node, or nil if the
// node is new. Earlier versions accepted such order keys and filters, and refusing them now would
// prevent every other change of the node. So each of the two is checked only if the change affects
// it, or affects which headers contain the secret.
func newlyExposedSecret(before, after *registry.Trigger) *exposedSecretHeader {
	if after.Sender == nil {
		return nil
	}
	secret := sender.SecretHeaders(after.Sender.Preset, after.Sender.Settings)
	var old registry.Trigger // before if its secret is in the same headers, else zero
	if before != nil && before.Sender != nil && slices.Equal(secret,
		sender.SecretHeaders(before.Sender.Preset, before.Sender.Settings)) {
		old = *before
	}
	if after.OrderKey != old.OrderKey {
		key, err := filter.ParseOrderKeyPlace(after.OrderKey)
		if err == nil && slices.Contains(secret, key.Header()) {
			return &exposedSecretHeader{"orderKey", key.Header()}
		}
	}
	if after.Filter != old.Filter {
		f, err := filter.Parse([]byte(after.Filter))
		if err != nil {
			return nil
		}
		for _, name := range f.Headers() {
			if slices.Contains(secret, name) {
				return &exposedSecretHeader{"filter", name}
			}
		}
	}
	return nil
}
