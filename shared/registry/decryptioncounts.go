package registry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/shared/registry/seal"
)

// DecryptionCounts counts the items that a set of keys can and cannot decrypt. The caller decides
// what an item is: an encrypted value, a node with secrets, or a workflow with secrets.
type DecryptionCounts struct {
	Decryptable   int      // number of items that the keys can decrypt
	Undecryptable int      // number of items that the keys cannot decrypt
	MissingKeyIDs []string // IDs of the missing keys, sorted
	LastError     error    // the last error that was counted; nil if there was none
}

// CountResult counts the result of one attempt to decrypt something: as decryptable if err is nil,
// and as undecryptable if err wraps seal.ErrNoKey or seal.ErrInvalidBox. It ignores all other
// errors, because they say nothing about the keys.
func (s *DecryptionCounts) CountResult(err error) {
	switch {
	case err == nil:
		s.Decryptable++
		return
	case !errors.Is(err, seal.ErrNoKey) && !errors.Is(err, seal.ErrInvalidBox):
		return // the keys are not the cause
	}
	s.Undecryptable++
	s.LastError = err
	if missing, ok := errors.AsType[*seal.MissingKeyError](err); ok {
		if at, known := slices.BinarySearch(s.MissingKeyIDs, missing.ID); !known {
			s.MissingKeyIDs = slices.Insert(s.MissingKeyIDs, at, missing.ID)
		}
	}
}

// add adds the counts of other items to s.
func (s *DecryptionCounts) add(other DecryptionCounts) {
	s.Decryptable += other.Decryptable
	s.Undecryptable += other.Undecryptable
	if other.LastError != nil {
		s.LastError = other.LastError
	}
	s.MissingKeyIDs = append(slices.Clip(s.MissingKeyIDs), other.MissingKeyIDs...)
	slices.Sort(s.MissingKeyIDs)
	s.MissingKeyIDs = slices.Compact(s.MissingKeyIDs)
}

// CheckAnyDecrypted returns an error if there are encrypted secrets but the keys can decrypt none
// of them, which suggests that the process has the wrong key file.
func (s *DecryptionCounts) CheckAnyDecrypted(keys *seal.Keys) error {
	if s.Undecryptable == 0 || s.Decryptable > 0 {
		return nil
	}
	if len(s.MissingKeyIDs) == 0 {
		return fmt.Errorf("--secrets-key-file opens nothing of what is sealed: %w", s.LastError)
	}
	present := "there is none"
	if ids := keys.IDs(); len(ids) > 0 {
		present = "it has " + strings.Join(ids, ", ")
	}
	return fmt.Errorf("--secrets-key-file opens nothing of what is sealed: that needs the key "+
		"%s, and %s; give every executor and ingress the same file",
		strings.Join(s.MissingKeyIDs, ", "), present)
}

// Warning returns a warning that some secrets cannot be decrypted, with the IDs of the missing keys
// if keys are missing. It returns "" if every secret can be decrypted.
func (s *DecryptionCounts) Warning() string {
	switch {
	case s.Undecryptable == 0:
		return ""
	case len(s.MissingKeyIDs) == 0:
		return fmt.Sprintf("a part of what is sealed does not open: %v; requests to nodes whose "+
			"secrets it is are answered with 503", s.LastError)
	}
	return fmt.Sprintf("--secrets-key-file lacks the key %s, with which a part of what is sealed "+
		"is sealed; requests to nodes whose secrets that is are answered with 503",
		strings.Join(s.MissingKeyIDs, ", "))
}

// CountWorkflowSecrets tries to decrypt every encrypted value in a workflow's record and counts the
// results.
func (s *DecryptionCounts) CountWorkflowSecrets(keys *seal.Keys, w *Workflow) {
	try := func(box []byte, about string) {
		_, err := keys.Open(box, about)
		s.CountResult(err)
	}
	for _, node := range w.Triggers {
		if node.Sender == nil {
			continue
		}
		for _, secret := range node.Sender.Secrets {
			if len(secret.SealedText) > 0 { // otherwise it is a public key
				try(secret.SealedText, SenderSecretSealPurpose(w.ID, node.NodeID, secret.ID))
			}
		}
		for name, box := range node.Sender.SealedSettings {
			try(box, SenderSettingSealPurpose(w.ID, node.NodeID, name))
		}
	}
}
