package target

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Secret is a signing key as specified by Standard Webhooks.
type Secret []byte

// ParseSecrets parses one secret per line: base64 with or without the prefix whsec_. Errors contain
// no part of a secret.
func ParseSecrets(text string) ([]Secret, error) {
	var secrets []Secret
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil,
				fmt.Errorf("line %d is not whsec_ and base64; make one with: echo "+
					"whsec_$(openssl rand -base64 32)", number)
		}
		secrets = append(secrets, key)
	}
	if len(secrets) == 0 {
		return nil,
			errors.New("there is no secret; make one with: echo whsec_$(openssl rand -base64 32)")
	}
	return secrets, nil
}

// Sign sets the headers specified by Standard Webhooks. Without a secret it sets only the ID and
// the timestamp.
func Sign(header http.Header, secrets []Secret, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", at)
	signatures := make([]string, 0, len(secrets))
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte(id + "." + at + "."))
		_, _ = mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) > 0 {
		header.Set("Webhook-Signature", strings.Join(signatures, " "))
	}
}
