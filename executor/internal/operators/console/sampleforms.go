package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/webhook"
)

// The form of a trigger node's sample payload can be posted to three URLs, each of which saves the
// payload. Two of them then also start an execution with it: one by sending the payload to the
// webhook endpoint as a test, the other directly.

// maxSampleFormBytes is the maximum size, in bytes, of a form with a sample payload. URL encoding
// can triple the payload.
const maxSampleFormBytes = 3*operate.MaxSamplePayloadBytes + 16<<10

// sampleForm returns the form for the given operation. The form saves the sample payload and then
// calls afterSave, which may start an execution and returns the message for the operator.
func (c *Console) sampleForm(
	operation string, afterSave func(r *http.Request, p *postedForm) (string, error),
) *form {
	return &form{
		name:                 "sample",
		operation:            operation,
		showProblemAsMessage: true,
		settings: []setting{{"sample payload", []string{"digest"}, func([]string) string {
			return "another one"
		}}},
		fieldByAPIName: map[string]string{"body": "sample"},
		labelByAPIName: map[string]string{"body": "The sample payload"},
		maxBytes:       maxSampleFormBytes,
		pageURL:        workflowPageURL,
		showPage:       c.showWorkflow,
		save: func(r *http.Request, p *postedForm) (string, error) {
			if err := c.storeEditedSample(r, p); err != nil {
				return "", err
			}
			return afterSave(r, p)
		},
	}
}

// sampleText returns the text in which the page shows a node's sample payload. It returns "" if the
// node has none.
func sampleText(sample []byte) string {
	if sample = bytes.TrimSpace(sample); string(sample) != "null" {
		return indentJSON(sample)
	}
	return ""
}

// sampleDigest returns a hash of a sample payload. The form contains two hashes: one of the stored
// payload and one of the payload that the page shows. When the form is posted, they reveal whether
// the operator has edited the payload, and whether somebody else has changed it since the page was
// loaded. sampleDigest normalizes line breaks first, because browsers change them.
func sampleDigest(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimSpace(text))
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// sampleFields returns the field values of the sample payload's form. text is the payload as the
// page shows it. The field "digest" holds the hash of the stored payload, and "display" holds the
// hash of text.
func sampleFields(stored []byte, text string) map[string]string {
	return map[string]string{
		"sample": text, "digest": storedSampleDigest(stored), "display": sampleDigest(text),
		idempotencyKeyField: newIdempotencyKey(),
	}
}

// storedSampleDigest returns the digest of a stored sample payload.
func storedSampleDigest(stored []byte) string {
	if text := string(bytes.TrimSpace(stored)); text != "null" {
		return sampleDigest(text)
	}
	return sampleDigest("")
}

// storeEditedSample stores the sample payload if the operator has edited it. Otherwise, it only
// checks that the stored payload is still the one that the page showed.
func (c *Console) storeEditedSample(r *http.Request, p *postedForm) error {
	text := p.values["sample"]
	digest := sampleDigest(text)
	if digest == p.values["display"] {
		p.values["digest"], p.valuesStored = p.values[shownFieldPrefix+"digest"], true
		delete(p.values, "sample") // after a failure, the page shows the stored payload
		delete(p.values, "display")
		return c.checkSampleUnchanged(r, p)
	}
	p.values["digest"] = digest
	ctx := operate.WithSampleCondition(r.Context(), func(stored []byte) error {
		return p.checkEditConflict(map[string]string{"digest": storedSampleDigest(stored)})
	})
	_, err := c.Operate.SetSamplePayload(ctx, signin.Caller(ctx), r.PathValue("id"),
		r.URL.Query().Get("node"), []byte(text))
	if p.conflictingValues != nil {
		p.values["display"] = "" // the next post counts as edited and overwrites their payload
	}
	if err != nil {
		return err
	}
	p.valuesStored, p.newValues = true, map[string]string{
		shownFieldPrefix + "digest": digest, "display": digest,
	}
	maps.Copy(p.values, p.newValues)
	return nil
}

// checkSampleUnchanged returns an error if the stored sample payload is not the one that the page
// has shown.
func (c *Console) checkSampleUnchanged(r *http.Request, p *postedForm) error {
	node, err := c.Operate.TriggerNode(r.Context(), signin.Caller(r.Context()), r.PathValue("id"),
		r.URL.Query().Get("node"))
	if err != nil || storedSampleDigest(node.SamplePayload) == p.values["digest"] {
		return err
	}
	return operate.NewChangedSinceError("Not done: somebody else has changed the sample payload " +
		"since " +
		"you opened the page. This is the new one.")
}

func (c *Console) saveSampleForm() *form {
	return c.sampleForm("SetSamplePayload", func(*http.Request, *postedForm) (string, error) {
		return "Saved.", nil
	})
}

func (c *Console) rerunTriggerForm() *form {
	return c.sampleForm("RerunTrigger", func(r *http.Request, p *postedForm) (string, error) {
		key, err := p.takeIdempotencyKey()
		if err != nil {
			return "", err
		}
		started, err := c.Operate.RerunTrigger(r.Context(), signin.Caller(r.Context()),
			r.PathValue("id"), r.URL.Query().Get("node"), key)
		return p.recordStartedExecution(started, startedOnSampleMessage), err
	})
}

// codeTestRefused is the error code of the form if the webhook endpoint has refused the test.
const codeTestRefused = "test_refused"

// testDeliveryID returns the delivery ID of a test. The ID combines the form's idempotency key with
// the payload's digest. If the same form is posted again with the same payload, the test therefore
// counts as a duplicate and starts nothing; with another payload, it is a new delivery.
func testDeliveryID(key, digest string) string { return "test-" + key + "-" + digest[:16] }

// sendTestForm returns the form that sends the sample payload to the webhook endpoint as the node's
// sender would.
func (c *Console) sendTestForm() *form {
	return c.sampleForm("SendTest", func(r *http.Request, p *postedForm) (string, error) {
		key, err := p.takeIdempotencyKey()
		if err != nil {
			return "", err
		}
		ctx, caller := r.Context(), signin.Caller(r.Context())
		id, node := r.PathValue("id"), r.URL.Query().Get("node")
		sent, err := c.Operate.SendTest(ctx, caller, id, node,
			api.SendTest{DeliveryID: testDeliveryID(key, p.values["digest"])})
		if err != nil {
			return "", err
		}
		switch {
		case hasStartedExecution(sent):
			return p.recordStartedExecution(api.Started{ExecutionID: sent.ExecutionID},
				"Sent as "+c.senderTitle(ctx, id, node)+" does"+testOutcomeText(sent)), nil
		case !sent.Success:
			if sent.Code == string(webhook.CodeWorkflowInactive) {
				// The workflow is inactive, so the test was recorded as a rejection. Give the next
				// test a new delivery ID, or it would count as a repeat and would not be recorded.
				p.values[idempotencyKeyField] = newIdempotencyKey()
			}
			return "", &operate.Error{Code: codeTestRefused, Detail: testRefusalText(sent)}
		case sent.Filtered:
			p.redirectURL = p.form.pageURL(r) + "#filter-title"
			return "It does not meet the filter, so it starts nothing. The filtered requests are " +
				"listed with what did not hold.", nil
		default:
			return "Answered as a handshake. It starts nothing.", nil
		}
	})
}

// senderTitle returns the title of a node's sender, for a message.
func (c *Console) senderTitle(ctx context.Context, workflowID, nodeID string) string {
	t, err := c.triggerPane(ctx, workflowID, nodeID)
	if err != nil || t.Preset.Title == "" {
		return "a sender"
	}
	return t.Preset.Title
}

// hasStartedExecution reports whether a test has started an execution. If so, an error status from
// the endpoint is the execution's own answer, and not a refusal.
func hasStartedExecution(sent api.SentTest) bool {
	return sent.ExecutionID != "" && sent.Code != string(webhook.CodeWorkflowInactive) &&
		sent.Outcome != webhook.OutcomeUnknown
}

// testOutcomeText returns the last part of the message about a test that has started an execution:
// how the endpoint answered.
func testOutcomeText(sent api.SentTest) string {
	switch {
	case sent.Deduplicated:
		return ". It was sent before, and had started an execution then."
	case sent.Success:
		return ", and accepted."
	default:
		return strings.TrimSpace(fmt.Sprintf(", and accepted. It was answered with %d. %s",
			sent.Status, sent.Detail))
	}
}

// testRefusalText returns the message about a test that the endpoint has refused. The message says
// why, and in some cases what the operator can do.
func testRefusalText(sent api.SentTest) string {
	if sent.Code == string(webhook.CodeWorkflowInactive) {
		return "Its signature was right, but the workflow is inactive: the test was recorded as " +
			"rejected. Activate it, or run without the endpoint."
	}
	if sent.Code == string(webhook.CodeUnavailable) || sent.Code == string(webhook.CodeInternal) {
		return fmt.Sprintf("The endpoint answered %d %s. It may have started an execution. To "+
			"send the same test again starts at most one.", sent.Status, sent.Code)
	}
	return strings.TrimSpace(fmt.Sprintf("The endpoint refused it: %d %s. %s", sent.Status,
		sent.Code, sent.Detail))
}
