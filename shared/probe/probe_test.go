package probe_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/probe"
)

func TestWhoCanAnswer(t *testing.T) {
	mine, mate, stranger := probe.NewKey(), probe.NewKey(), probe.NewKey()
	keys := [][]byte{mate, mine}
	challenge := probe.NewChallenge(keys)
	ingress := probe.NewResponder(mine)
	response := ingress.Respond(challenge.HeaderValue())
	if response == "" || !challenge.IsValidResponse(response) {
		t.Errorf("the response %q to %q", response, challenge.HeaderValue())
	}
	if again := ingress.Respond(challenge.HeaderValue()); again != "" {
		t.Errorf("the same challenge is answered twice: %q", again)
	}
	other := probe.NewResponder(mate).Respond(challenge.HeaderValue())
	if !challenge.IsValidResponse(other) {
		t.Error("another ingress of the installation cannot answer")
	}
	if response := probe.NewResponder(stranger).Respond(challenge.HeaderValue()); response != "" {
		t.Errorf("a stranger's ingress answers %q", response)
	}
	// Invalid responses, including a valid response to another challenge, are refused.
	old := probe.NewChallenge(keys)
	for _, wrong := range []string{
		"", challenge.HeaderValue(), strings.Split(challenge.HeaderValue(), ".")[2],
		ingress.Respond(old.HeaderValue()), response + ".",
	} {
		if challenge.IsValidResponse(wrong) {
			t.Errorf("%q is taken for a response", wrong)
		}
	}
	if probe.NewChallenge(nil).IsValidResponse("") {
		t.Error("nobody's response is taken for one")
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
		if response := ingress.Respond(text); response != "" {
			t.Errorf("%q is answered %q", text, response)
		}
	}
	if ingress.Respond(asked) == "" {
		t.Error("what was tried before kept it from answering")
	}
	many := make([][]byte, 60)
	for i := range many {
		many[i] = probe.NewKey()
	}
	challenge := probe.NewChallenge(many)
	response := probe.NewResponder(many[0]).Respond(challenge.HeaderValue())
	if !challenge.IsValidResponse(response) {
		t.Error("of many ingresses, none can answer")
	}
}
