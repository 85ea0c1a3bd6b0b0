package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/shared/registry/seal"
)

// stripeSecret is the secret with which the requests of the variant hookstart-stripe are signed.
const stripeSecret = "whsec_of-the-bench" //nolint:gosec // it opens nothing

// stripeSigner signs a request as Stripe does. Like Stripe's, the request has its delivery ID in
// the body.
type stripeSigner struct {
	mac       hash.Hash
	body      []byte // the part of the request's text with the body
	timestamp []byte // the part with the time, which is signed together with the body
	signature []byte // the part with the signature in hexadecimal digits
}

func (s *stripeSigner) sign() {
	copy(s.timestamp, strconv.FormatInt(time.Now().Unix(), 10))
	s.mac.Reset()
	for _, part := range [][]byte{s.timestamp, {'.'}, s.body} {
		_, _ = s.mac.Write(part) // writing to a hash never fails
	}
	var sum [sha256.Size]byte
	hex.Encode(s.signature, s.mac.Sum(sum[:0]))
}

func newStripeRequest(to requestTarget, bodyBytes int) request {
	const id, timeLength = `{"id":"`, 10
	text := id + strings.Repeat("0", deliveryIDLength) + `",` +
		jsonBody(bodyBytes - len(id) - deliveryIDLength - 1)[1:]
	head := "POST " + to.path + " HTTP/1.1\r\nHost: " + to.addr +
		"\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(text)) + "\r\nStripe-Signature: t="
	const between = ",v1="
	whole := []byte(head + strings.Repeat("0", timeLength) + between +
		strings.Repeat("0", 2*sha256.Size) + "\r\n\r\n" + text)
	signature := len(head) + timeLength + len(between)
	start := signature + 2*sha256.Size + len("\r\n\r\n")
	return request{
		text: whole, id: whole[start+len(id) : start+len(id)+deliveryIDLength],
		signer: &stripeSigner{
			mac:       hmac.New(sha256.New, []byte(stripeSecret)),
			body:      whole[start:],
			timestamp: whole[len(head) : len(head)+timeLength],
			signature: whole[signature : signature+2*sha256.Size],
		},
	}
}

// installStripe is like installIngress, but with a key that encrypts senders' secrets. With this
// key, the first workflow gets a sender, whose signatures the ingress verifies (see
// setStripeSender).
func installStripe(ctx context.Context, b *launcher) (*system, error) {
	own := *b
	own.secretsKey = b.dataDir("secrets") + "-key"
	if err := os.WriteFile(own.secretsKey, []byte(seal.NewKeyLine()+"\n"), 0o600); err != nil {
		return nil, err
	}
	return installIngress(ctx, &own)
}

// setStripeSender configures Stripe as the sender of the first workflow, with stripeSecret.
func (s *system) setStripeSender(ctx context.Context) error {
	_, err := s.api().PutSender(ctx, workflowID(0), nodeID, api.PutSender{
		Preset:  "stripe",
		Secrets: []string{stripeSecret},
	})
	s.signed = err == nil
	return err
}
