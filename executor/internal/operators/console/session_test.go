package console

import "testing"

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/":                              "/",
		"/workflows/orders?node=a&x=%2F": "/workflows/orders?node=a&x=%2F",
		"/workflows#executions":          "/workflows#executions",
		"":                               "/",
		"workflows":                      "/",
		"//evil.example":                 "/",
		"///evil.example":                "/",
		"/\\evil.example":                "/",
		"/\t/evil.example":               "/",
		"/%0a/evil.example":              "/%0a/evil.example", // still a path of this site
		"https://evil.example/":          "/",
		"https:evil.example":             "/",
		"javascript:alert(1)":            "/",
		"\\\\evil.example":               "/",
		"/%2f/evil.example":              "/", // decoded, it begins with //
		"/sign-in?next=/sign-in":         "/",
		"/sign-out":                      "/",
		" /workflows":                    "/",
		"/a\x00b":                        "/",
	} {
		if got := localPathOrRoot(target); got != want {
			t.Errorf("localPath(%q) = %q, want %q", target, got, want)
		}
	}
}
