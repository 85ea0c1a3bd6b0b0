package registry

import (
	"fmt"
	"maps"

	"github.com/hookstart/hookstart/shared/registry/seal"
	"github.com/hookstart/hookstart/shared/sender"
)

// The following functions return the purposes for package seal. A secret can be decrypted only with
// the purpose for which it was encrypted, and every purpose names the kind of the secret and the
// node that it belongs to. So an encrypted secret cannot be used in place of another one.

// TriggerSecretsSealPurpose returns the purpose for which the tokens and the sample payload of a
// node are encrypted.
func TriggerSecretsSealPurpose(workflowID, nodeID string) string {
	return "trigger:" + workflowID + "." + nodeID
}

// SenderSecretSealPurpose returns the purpose to pass to package seal to encrypt or decrypt a
// secret in a node's sender record. It contains the IDs, so an encrypted secret cannot be copied to
// another node or stored under the ID of another secret.
func SenderSecretSealPurpose(workflowID, nodeID, secretID string) string {
	return "secret:" + workflowID + "." + nodeID + ":" + secretID
}

// SenderSettingSealPurpose returns the purpose for which a secret setting in a node's sender record
// is encrypted.
func SenderSettingSealPurpose(workflowID, nodeID, name string) string {
	return "setting:" + workflowID + "." + nodeID + ":" + name
}

// CapturedSecretSealPurpose returns the purpose for which a secret that was received from a node's
// provider is encrypted on its way to the executors.
func CapturedSecretSealPurpose(workflowID, nodeID string) string {
	return "captured:" + workflowID + "." + nodeID
}

// DecryptSender decrypts the sender record of a node. The returned config holds the secrets in
// plain text; it is the zero Config if record is nil. Errors name the node, and wrap the errors of
// seal.Keys.Open.
func DecryptSender(
	keys *seal.Keys, workflowID, nodeID string, record *Sender,
) (sender.Config, error) {
	if record == nil {
		return sender.Config{}, nil
	}
	config := sender.Config{Preset: record.Preset, Settings: maps.Clone(record.Settings)}
	open := func(box []byte, about string) (string, error) {
		text, err := keys.Open(box, about)
		if err != nil {
			err = fmt.Errorf("the sender of trigger node %q of workflow %q: %w", nodeID, workflowID,
				err)
		}
		return string(text), err
	}
	for name, box := range record.SealedSettings {
		text, err := open(box, SenderSettingSealPurpose(workflowID, nodeID, name))
		if err != nil {
			return config, err
		}
		if config.Settings == nil {
			config.Settings = map[string]string{}
		}
		config.Settings[name] = text
	}
	for _, s := range record.Secrets {
		secret := sender.Secret{ID: s.ID, Text: s.PublicKey, ExpiresAt: s.ExpiresAt}
		if len(s.SealedText) > 0 {
			text, err := open(s.SealedText, SenderSecretSealPurpose(workflowID, nodeID, s.ID))
			if err != nil {
				return config, err
			}
			secret.Text = text
		}
		config.Secrets = append(config.Secrets, secret)
	}
	return config, nil
}

// compileSender decrypts the sender record of a node and returns the sender.Sender that verifies
// the node's requests. Errors name the node.
func compileSender(
	keys *seal.Keys, workflowID, nodeID string, record *Sender,
) (*sender.Sender, error) {
	config, err := DecryptSender(keys, workflowID, nodeID, record)
	if err != nil {
		return nil, err
	}
	s, err := sender.Compile(config)
	if err != nil {
		return nil,
			fmt.Errorf("the sender of trigger node %q of workflow %q: %w", nodeID, workflowID, err)
	}
	return s, nil
}
