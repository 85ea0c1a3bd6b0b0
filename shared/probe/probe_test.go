package probe_test

import (
	"strings"
	"testing"

	"github.com/hookstart/hookstart/shared/probe"
)

func TestWhoCanAnswer(t *testing.T) {
	mine, mate, stranger := probe.NewKey(), probe.NewKey(), probe.NewKey()
	keys := [][]byte{mate, mine}
	question := probe.NewQuestion(keys)
	ingress := probe.NewAnswerer(mine)
	answer := ingress.Answer(question.HeaderValue())
	if answer == "" || !question.IsAnsweredBy(answer) {
		t.Errorf("the answer %q to %q", answer, question.HeaderValue())
	}
	if again := ingress.Answer(question.HeaderValue()); again != "" {
		t.Errorf("the same question is answered twice: %q", again)
	}
	if answer := probe.NewAnswerer(
		mate,
	).Answer(
		question.HeaderValue(),
	); !question.IsAnsweredBy(
		answer,
	) {
		t.Error("another ingress of the installation cannot answer")
	}
	if answer := probe.NewAnswerer(stranger).Answer(question.HeaderValue()); answer != "" {
		t.Errorf("a stranger's ingress answers %q", answer)
	}
	// Invalid answers, including a valid answer to another question, are refused.
	old := probe.NewQuestion(keys)
	for _, wrong := range []string{
		"", question.HeaderValue(), strings.Split(question.HeaderValue(), ".")[2],
		ingress.Answer(old.HeaderValue()), answer + ".",
	} {
		if question.IsAnsweredBy(wrong) {
			t.Errorf("%q is taken for an answer", wrong)
		}
	}
	if probe.NewQuestion(nil).IsAnsweredBy("") {
		t.Error("nobody's answer is taken for one")
	}
}

func TestWhatIsNoQuestionHasNoAnswer(t *testing.T) {
	key := probe.NewKey()
	ingress := probe.NewAnswerer(key)
	asked := probe.NewQuestion([][]byte{key}).HeaderValue()
	for _, text := range []string{
		"", ".", "x", asked[:len(asked)-1], asked + "x", "y" + asked,
		strings.Replace(asked, ".", "", 1), asked + strings.Repeat(".x", 2000),
		probe.NewQuestion([][]byte{probe.NewKey()}).HeaderValue(),
		probe.NewQuestion(nil).HeaderValue(),
	} {
		if answer := ingress.Answer(text); answer != "" {
			t.Errorf("%q is answered %q", text, answer)
		}
	}
	if ingress.Answer(asked) == "" {
		t.Error("what was tried before kept it from answering")
	}
	many := make([][]byte, 60)
	for i := range many {
		many[i] = probe.NewKey()
	}
	question := probe.NewQuestion(many)
	if answer := probe.NewAnswerer(many[0]).
		Answer(question.HeaderValue()); !question.IsAnsweredBy(answer) {
		t.Error("of many ingresses, none can answer")
	}
}
