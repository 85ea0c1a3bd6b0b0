// Package probe lets an executor find out whether a URL leads to an ingress of its own
// installation: by a header on a request that starts nothing, and a header on the usual answer.
//
// Each ingress makes a key and sends it to the executors over NATS. Questions and answers are
// signed with it. So only an executor can ask, only an ingress of this installation can answer, and
// strangers see nothing of it.
package probe

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
)

// Header is the name of the header with the question in a request, and with the answer in its
// response.
const Header = "Hookstart-Probe"

// maxKeys is the maximum number of ingresses that one question addresses; the one to which the URL
// leads answers. If there are more ingresses, ask again.
const maxKeys = 50

// NewKey returns a new key for one ingress.
func NewKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails: crypto/rand says so
	return key
}

// Question is a question to the holders of any of some keys. It may be asked once.
type Question struct {
	nonce string
	keys  [][]byte
}

// Ask returns a new question to the holders of any of the keys.
func Ask(keys [][]byte) Question {
	return Question{nonce: rand.Text(), keys: keys[:min(len(keys), maxKeys)]}
}

// Header returns the value of the header with the question.
func (q Question) Header() string {
	parts := []string{q.nonce}
	for _, key := range q.keys {
		parts = append(parts, sign(key, "question", q.nonce))
	}
	return strings.Join(parts, ".")
}

// AnsweredBy reports whether the answer was made with one of the keys.
func (q Question) AnsweredBy(answer string) bool {
	return slices.ContainsFunc(q.keys, func(key []byte) bool {
		return hmac.Equal([]byte(answer), []byte(sign(key, "answer", q.nonce)))
	})
}

// Answerer answers the questions to one ingress. It is safe for concurrent use.
type Answerer struct {
	key []byte

	mu    sync.Mutex
	asked [remembered]string // the last questions' nonces
	next  int
}

// remembered is the number of nonces that are kept to refuse replays of questions.
const remembered = 1000

// NewAnswerer returns an Answerer for questions that are signed with the key.
func NewAnswerer(key []byte) *Answerer { return &Answerer{key: key} }

// longest is the length of a question to maxKeys ingresses.
const longest = 2 << 10

// Answer returns the answer to a question, or "" if the question is malformed, was not signed with
// this ingress's key, or was asked before.
func (a *Answerer) Answer(question string) string {
	if question == "" || len(question) > longest {
		return ""
	}
	nonce, signatures, _ := strings.Cut(question, ".")
	want := []byte(sign(a.key, "question", nonce))
	asked := false
	for signature := range strings.SplitSeq(signatures, ".") {
		asked = asked || hmac.Equal([]byte(signature), want)
	}
	if !asked || !a.first(nonce) {
		return ""
	}
	return sign(a.key, "answer", nonce)
}

// first reports whether a nonce is new, and remembers it.
func (a *Answerer) first(nonce string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.asked[:], nonce) {
		return false
	}
	a.asked[a.next] = nonce
	a.next = (a.next + 1) % remembered
	return true
}

// sign returns half of an HMAC, which is sufficient for a question that is asked once.
func sign(key []byte, what, nonce string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(what + " " + nonce))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:sha256.Size/2])
}
