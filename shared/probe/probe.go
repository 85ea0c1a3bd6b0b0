// Package probe lets an executor find out whether a URL reaches an ingress of its installation. The
// executor sends a request that starts nothing, with a question in a header. The ingress answers in
// a header of the usual response.
//
// Each ingress creates a key and sends it to the executors over NATS. Questions and answers are
// signed with that key. So only an executor can ask, only an ingress of this installation can
// answer, and others cannot detect the probes.
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

// Header is the header that contains the question in a request and the answer in the response.
const Header = "Hookstart-Probe"

// maxKeysPerQuestion is the maximum number of keys, and thus of ingresses, in one question. An
// installation with more ingresses needs several questions, because the URL may reach any ingress.
const maxKeysPerQuestion = 50

// NewKey returns a random key, with which one ingress proves that it received a Question.
func NewKey() []byte {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails, as crypto/rand documents
	return key
}

// Question asks whether a request has reached one of the ingresses that hold certain keys. Each
// ingress answers it only once.
type Question struct {
	nonce string
	keys  [][]byte
}

// NewQuestion returns a new question addressed to the ingresses that hold the keys. Keys beyond
// maxKeysPerQuestion are ignored.
func NewQuestion(keys [][]byte) Question {
	return Question{nonce: rand.Text(), keys: keys[:min(len(keys), maxKeysPerQuestion)]}
}

// HeaderValue returns the value of the header that contains the question.
func (q Question) HeaderValue() string {
	parts := []string{q.nonce}
	for _, key := range q.keys {
		parts = append(parts, sign(key, "question", q.nonce))
	}
	return strings.Join(parts, ".")
}

// IsAnsweredBy reports whether answer is a valid answer to q, signed with one of q's keys.
func (q Question) IsAnsweredBy(answer string) bool {
	return slices.ContainsFunc(q.keys, func(key []byte) bool {
		return hmac.Equal([]byte(answer), []byte(sign(key, "answer", q.nonce)))
	})
}

// Answerer answers the questions that one ingress receives, and refuses repeated ones. It is safe
// for concurrent use.
type Answerer struct {
	key []byte

	mu         sync.Mutex
	seenNonces [maxRememberedNonces]string // the nonces of the most recent questions
	nextIndex  int
}

// maxRememberedNonces is the number of nonces that are kept to refuse replayed questions.
const maxRememberedNonces = 1000

// NewAnswerer returns an Answerer for questions that are signed with the key.
func NewAnswerer(key []byte) *Answerer { return &Answerer{key: key} }

// maxQuestionBytes limits the length of a question in bytes. A question to maxKeysPerQuestion
// ingresses is shorter.
const maxQuestionBytes = 2 << 10

// Answer returns the answer to a question, or "" if the question is malformed, is not signed with
// this ingress's key, or has been asked before.
func (a *Answerer) Answer(question string) string {
	if question == "" || len(question) > maxQuestionBytes {
		return ""
	}
	nonce, signatures, _ := strings.Cut(question, ".")
	want := []byte(sign(a.key, "question", nonce))
	asked := false
	for signature := range strings.SplitSeq(signatures, ".") {
		asked = asked || hmac.Equal([]byte(signature), want)
	}
	if !asked || !a.recordNonceIfNew(nonce) {
		return ""
	}
	return sign(a.key, "answer", nonce)
}

// recordNonceIfNew reports whether a nonce is new, and records it.
func (a *Answerer) recordNonceIfNew(nonce string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.seenNonces[:], nonce) {
		return false
	}
	a.seenNonces[a.nextIndex] = nonce
	a.nextIndex = (a.nextIndex + 1) % maxRememberedNonces
	return true
}

// sign returns the first half of the HMAC-SHA256 of purpose and nonce, in base64url. Half of it is
// enough, because each question and each answer is used only once.
func sign(key []byte, purpose, nonce string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose + " " + nonce))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:sha256.Size/2])
}
