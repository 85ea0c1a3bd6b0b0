package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/shared/execution"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/stream"
)

// Check reads a backup file as Restore would, and returns an *UnusableFileError if its content
// could not be restored. It does not need an installation and changes nothing.
func Check(path string) (Manifest, error) {
	r, err := openReader(path)
	if err != nil {
		return Manifest{}, err
	}
	defer r.close()
	return r.Manifest, r.verify(path)
}

// verify returns an *UnusableFileError if any of the file's content could not be restored.
// Otherwise it sets the key IDs in the manifest.
func (r *reader) verify(path string) error {
	var err error
	for _, saved := range r.Manifest.Streams {
		err = errors.Join(err, r.verifyStream(saved))
	}
	err = errors.Join(err, r.verifyRecords(recordsEntryName, "records", r.Manifest.ExecutionCount))
	if r.hasEntry(auditEntryName) {
		err = errors.Join(err, r.verifyRecords(auditEntryName, "entries of the audit",
			r.Manifest.AuditEntryCount))
	}
	keys := map[string]bool{}
	for _, saved := range r.Manifest.Buckets {
		err = errors.Join(err, r.verifyBucket(saved, keys))
	}
	if err != nil {
		return &UnusableFileError{
			path, "cannot be restored: " + strings.ReplaceAll(err.Error(), "\n", "; "),
		}
	}
	// Always compute the key IDs from the records. Manifests written by earlier versions do not
	// list them.
	r.Manifest.KeyIDs = slices.Sorted(maps.Keys(keys))
	return nil
}

// verifyStream returns an error if a stream's messages could not be restored with their original
// sequences, or if the manifest contradicts the messages.
func (r *reader) verifyStream(want SavedStream) error {
	subjects := want.subjectsAfterRestore()
	if subjects == nil {
		return fmt.Errorf("there is no stream %s in this version", want.Name)
	}
	found, next := 0, want.FirstSequence
	err := r.forEachMessage(streamEntryName(want.Name), func(m message) error {
		found++
		switch {
		case m.Sequence < next || m.Sequence > want.LastSequence:
			return fmt.Errorf("message %d is not in order: it must be from %d to %d", m.Sequence,
				next, want.LastSequence)
		case !matchesAnyWildcard(subjects, m.Subject) && m.Sequence > want.RecordedUpTo:
			return fmt.Errorf("message %d has the subject %s, which is not one of the stream's, "+
				"and is not recorded", m.Sequence, m.Subject)
		}
		next = m.Sequence + 1
		return nil
	})
	if err == nil && found != want.MessageCount {
		err = fmt.Errorf("there are %d messages, and must be %d", found, want.MessageCount)
	}
	for _, group := range want.GroupPositions {
		if group.Config.Durable == "" || group.AckFloor > want.LastSequence {
			err = errors.Join(err,
				fmt.Errorf("the consumer %q has acknowledged %d of %d messages",
					group.Config.Durable, group.AckFloor, want.LastSequence))
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	return nil
}

// subjectsAfterRestore returns the subjects that the stream will have when Restore has created it.
// It returns nil if hookstart has no stream with this name.
func (s SavedStream) subjectsAfterRestore() []string {
	switch s.Name {
	case stream.ExecutionsName:
		return stream.DefaultSettings.ExecutionsStreamConfig().Subjects
	case stream.ProgressName:
		return stream.DefaultSettings.ProgressStreamConfig().Subjects
	case stream.ReportsName:
		return []string{stream.ReportsSubjects}
	}
	if queue, ok := stream.QueueOfOwnStream(s.Name); ok && execution.ValidName(queue) {
		return stream.DefaultSettings.OwnStreamConfig(queue, stream.QueueStreamLimits{}).Subjects
	}
	if queue, ok := stream.QueueOfOwnProgressStream(s.Name); ok && execution.ValidName(queue) {
		return stream.DefaultSettings.OwnProgressStreamConfig(queue,
			stream.QueueStreamLimits{}).Subjects
	}
	return nil
}

// matchesAnyWildcard reports whether a subject matches at least one of the given NATS wildcards.
func matchesAnyWildcard(wildcards []string, subject string) bool {
	return slices.ContainsFunc(wildcards, func(wildcard string) bool {
		want, is := strings.Split(wildcard, "."), strings.Split(subject, ".")
		for i, token := range want {
			switch {
			case token == ">":
				return len(is) > i
			case i >= len(is) || token != "*" && token != is[i]:
				return false
			}
		}
		return len(want) == len(is)
	})
}

// verifyRecords returns an error if a line of the named entry is not valid JSON, or if the entry
// does not hold exactly want records. what names the records in the error, in the plural, such as
// "audit entries".
func (r *reader) verifyRecords(name, what string, want int) error {
	found, line := 0, 0
	err := r.forEachLine(name, func(text []byte) error {
		line++
		var part struct{ Records, Audit []struct{} }
		if err := json.Unmarshal(text, &part); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
		if found += len(part.Records); name == auditEntryName {
			found += len(part.Audit)
		}
		return nil
	})
	if err == nil && found != want {
		err = fmt.Errorf("there are %d %s, and must be %d", found, what, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// verifyBucket checks the records of a bucket. It returns an error if this version cannot decode a
// record, or if the bucket does not hold as many records as the manifest says. It also collects the
// IDs of the secrets keys with which the records are encrypted, and adds these IDs to the map keys.
func (r *reader) verifyBucket(want SavedBucket, keys map[string]bool) error {
	live := map[string]bool{}
	err := r.forEachMessage(bucketEntryName(want.Name), func(m message) error {
		if !strings.HasPrefix(m.Subject, registry.SubjectOf(want.Name, "")) {
			return fmt.Errorf("record %d has the subject %s, which is not the bucket's", m.Sequence,
				m.Subject)
		}
		ids, err := encryptionKeyIDs(m, want.Name)
		if err != nil {
			return fmt.Errorf("record %d, %s: %w", m.Sequence, m.Subject, err)
		}
		for _, id := range ids {
			keys[id] = true
		}
		live[m.Subject] = !m.isDeletion()
		return nil
	})
	records := 0
	for _, is := range live {
		if is {
			records++
		}
	}
	if err == nil && records != want.RecordCount {
		err = fmt.Errorf("there are %d records, and must be %d", records, want.RecordCount)
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", want.Name, err)
	}
	return nil
}

// encryptionKeyIDs returns the IDs of the secrets keys with which the record in m is encrypted.
// bucket is the name of the bucket that contains the record.
func encryptionKeyIDs(m message, bucket string) ([]string, error) {
	var boxes [][]byte
	switch {
	case m.isDeletion():
	case bucket == registry.SecretsBucket:
		secrets, err := registry.DecodeTriggerSecrets(m.Data)
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, secrets.SealedContent)
	default:
		change, err := registry.DecodeChange(m.Subject, false, m.Sequence, m.StoredAt, m.Data)
		if err != nil {
			return nil, err
		}
		if change.Workflow != nil {
			boxes = change.Workflow.SealedValues()
		}
	}
	var ids []string
	for _, box := range boxes {
		if len(box) == 0 {
			continue
		}
		id := seal.KeyID(box)
		if id == "" {
			return nil, errors.New("it is sealed in a form that this version does not know")
		}
		ids = append(ids, id)
	}
	return ids, nil
}
