package apiserver_test

import (
	"strings"
	"testing"
)

func TestPublicURLWithoutAnIngress(t *testing.T) {
	t.Parallel()
	r := start(t)
	a := r.get("/public-url").is(200)
	if !strings.HasPrefix(string(a.body),
		`{"url":"https://hooks.example.com","onlyThisMachine":false,"state":"unknown","detail":"No ingress is alive`) {
		t.Errorf("%s", a.body)
	}
}
