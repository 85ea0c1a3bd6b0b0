package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// minBodyBytes is the minimum size of a body in bytes, with room for its fixed parts.
const minBodyBytes = 256

// jsonBody returns a JSON document of exactly size bytes that resembles a webhook's body: nested
// objects, short texts, numbers and times.
func jsonBody(size int) string {
	const head = `{"event":"order.paid","createdAt":"2026-01-02T03:04:05Z","live":true,` +
		`"order":{"id":"or_1042","total":129.9,"currency":"EUR","items":[`
	const item = `{"sku":"A-1001","name":"Caf\u00e9 au lait","quantity":2,"price":4.5},`
	const tail = `null]},"note":"`
	const end = `"}`
	items := (size - len(head) - len(tail) - len(end)) / len(item)
	text := head + strings.Repeat(item, max(items, 0)) + tail
	return text + strings.Repeat("x", size-len(text)-len(end)) + end
}

// request is the text of the HTTP request that one connection sends repeatedly. Only the workflow,
// the delivery ID and the signature change from one delivery to the next.
type request struct {
	text          []byte
	id            []byte // the part of text with the delivery ID
	workflow      []byte // the part of text with the workflow's number
	firstWorkflow uint64 // number of the first workflow
	// signer signs the request. nil means that the request is not signed and has its delivery ID in
	// a header.
	signer *stripeSigner
}

// workflowDigitCount is the number of hexadecimal digits at the end of every workflow's ID.
const workflowDigitCount = 6

// workflowID returns the ID of the benchmark's nth workflow; the first one has the number 0.
func workflowID(n int) string { return fmt.Sprintf("bench%0*x", workflowDigitCount, n) }

const deliveryIDLength = 25 // the seed and the number in hexadecimal, with a hyphen between

func newRequest(to requestTarget, bodyBytes int) request {
	if to.signed {
		return newStripeRequest(to, bodyBytes)
	}
	authorization := ""
	if to.bearerToken != "" {
		authorization = "\r\nAuthorization: Bearer " + to.bearerToken
	}
	head := "POST " + to.path + " HTTP/1.1\r\nHost: " + to.addr + authorization +
		"\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(bodyBytes) + "\r\nX-Webhook-Delivery-Id: "
	text := []byte(head + strings.Repeat("0", deliveryIDLength) + "\r\n\r\n" + jsonBody(bodyBytes))
	workflow := len("POST "+firstWebhookPath) - workflowDigitCount
	return request{
		text: text, id: text[len(head) : len(head)+deliveryIDLength],
		workflow:      text[workflow : workflow+workflowDigitCount],
		firstWorkflow: uint64(to.firstWorkflow), //nolint:gosec // not negative
	}
}

// setDelivery changes the request to the nth delivery for the seed. The delivery goes to one of the
// given number of workflows. Successive deliveries go to workflows with distant numbers: the data
// of adjacent workflows may share a cache line, which would make the second request faster.
func (r request) setDelivery(seed, n, workflows uint64) {
	const stride = 7_368_787 // a prime, so every workflow gets its turn
	fillDeliveryID(r.id, seed, n)
	if r.signer != nil { // all signed requests go to one workflow
		r.signer.sign()
		return
	}
	fillHex(r.workflow, r.firstWorkflow+n*stride%workflows)
}

func fillDeliveryID(text []byte, seed, n uint64) {
	fillHex(text[:8], seed)
	text[8] = '-'
	fillHex(text[9:], n)
}

// deliveryID returns the ID of the nth delivery for a seed.
func deliveryID(seed, n uint64) string {
	var text [deliveryIDLength]byte
	fillDeliveryID(text[:], seed, n)
	return string(text[:])
}

// fillHex fills text with the hexadecimal digits of a value, with leading zeros.
func fillHex(text []byte, value uint64) {
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = "0123456789abcdef"[value&15]
		value >>= 4
	}
}

var (
	statusOK            = []byte("HTTP/1.1 200 ")
	statusLimited       = []byte("HTTP/1.1 429 ")
	statusUnavailable   = []byte("HTTP/1.1 503 ")
	headersEnd          = []byte("\r\n\r\n")
	contentLengthPrefix = []byte("Content-Length: ")
	deduplicatedMember  = []byte(`"deduplicated"`)
)

// parseResponse returns the length of the response at the beginning of text, or 0 if it is
// incomplete. status is the status code of a complete response. parseResponse returns an error
// unless the response is a 429, a 503, or a 200 for a new delivery.
func parseResponse(text []byte) (length, status int, err error) {
	header := bytes.Index(text, headersEnd)
	if header < 0 {
		return 0, 0, nil
	}
	switch {
	case bytes.HasPrefix(text, statusOK):
		status = http.StatusOK
	case bytes.HasPrefix(text, statusLimited):
		status = http.StatusTooManyRequests
	case bytes.HasPrefix(text, statusUnavailable):
		status = http.StatusServiceUnavailable
	default:
		return 0, 0, fmt.Errorf("answer %q", text)
	}
	_, value, ok := bytes.Cut(text[:header+2], contentLengthPrefix)
	if !ok {
		return 0, 0, fmt.Errorf("an answer of unknown length: %q", text)
	}
	value, _, _ = bytes.Cut(value, headersEnd[:2])
	size, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, 0, fmt.Errorf("Content-Length %q", value)
	}
	whole := header + len(headersEnd) + size
	if len(text) < whole {
		return 0, 0, nil
	}
	if bytes.Contains(text[header:whole], deduplicatedMember) {
		return 0, 0, errors.New("a new delivery was taken for a repeat")
	}
	return whole, status, nil
}
