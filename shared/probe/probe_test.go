package probe_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/probe"
)

func TestWhoCanAnswer(t *testing.T) {
	mine, mate, stranger := probe.NewKey(), probe.NewKey(), probe.NewKey()
	keys := [][]byte{mate, mine}
	question := probe.NewChallenge(keys)
	ingress := probe.NewResponder(mine)
	answer := ingress.Respond(question.HeaderValue())
	if answer == "" || !question.IsValidResponse(answer) {
		t.Errorf("the answer %q to %q", answer, question.HeaderValue())
	}
	if again := ingress.Respond(question.HeaderValue()); again != "" {
		t.Errorf("the same question is answered twice: %q", again)
	}
	if answer := probe.NewResponder(
		mate,
	).Respond(
		question.HeaderValue(),
	); !question.IsValidResponse(
		answer,
	) {
		t.Error("another ingress of the installation cannot answer")
	}
	if answer := probe.NewResponder(stranger).Respond(question.HeaderValue()); answer != "" {
		t.Errorf("a stranger's ingress answers %q", answer)
	}
	// Invalid answers, including a valid answer to another question, are refused.
	old := probe.NewChallenge(keys)
	for _, wrong := range []string{
		"", question.HeaderValue(), strings.Split(question.HeaderValue(), ".")[2],
		ingress.Respond(old.HeaderValue()), answer + ".",
	} {
		if question.IsValidResponse(wrong) {
			t.Errorf("%q is taken for an answer", wrong)
		}
	}
	if probe.NewChallenge(nil).IsValidResponse("") {
		t.Error("nobody's answer is taken for one")
	}
}

func TestInvalidChallengesGetNoResponse(t *testing.T) {
	key := probe.NewKey()
	ingress := probe.NewResponder(key)
	asked := probe.NewChallenge([][]byte{key}).HeaderValue()
	for _, text := range []string{
		"", ".", "x", asked[:len(asked)-1], asked + "x", "y" + asked,
		strings.Replace(asked, ".", "", 1), asked + strings.Repeat(".x", 2000),
		probe.NewChallenge([][]byte{probe.NewKey()}).HeaderValue(),
		probe.NewChallenge(nil).HeaderValue(),
	} {
		if answer := ingress.Respond(text); answer != "" {
			t.Errorf("%q is answered %q", text, answer)
		}
	}
	if ingress.Respond(asked) == "" {
		t.Error("what was tried before kept it from answering")
	}
	many := make([][]byte, 60)
	for i := range many {
		many[i] = probe.NewKey()
	}
	question := probe.NewChallenge(many)
	if answer := probe.NewResponder(many[0]).
		Respond(question.HeaderValue()); !question.IsValidResponse(answer) {
		t.Error("of many ingresses, none can answer")
	}
}
