package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

var (
	errUnsigned = errors.New("there is no X-Hub-Signature-256: give the webhook a secret in " +
		"GitHub's settings")
	errForged = errors.New("X-Hub-Signature-256 is not that of this body: either the secrets " +
		"differ, or GitHub has not sent it")
)

// verify checks GitHub's signature, which is "sha256=" followed by the HMAC of the body in hex.
// hmac.Equal takes the same time for every wrong signature, so an attacker cannot find the right
// signature one digit at a time.
func verify(secret, body []byte, signature string) error {
	if signature == "" {
		return errUnsigned
	}
	digits, ok := strings.CutPrefix(signature, "sha256=")
	claimed, err := hex.DecodeString(digits)
	if err != nil || !ok {
		return errForged
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(body) // a hash never returns an error
	if !hmac.Equal(claimed, mac.Sum(nil)) {
		return errForged
	}
	return nil
}
