package console

import "net/http"

// contentSecurityPolicy lets pages load resources only from the executor, and send requests only to
// the executor. Images may also be data URLs.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src " +
	"'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// withSecurityHeaders sets the security headers of every response, including errors. It also
// disables caching; the handler of the assets overrides this.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Frame-Options", "DENY")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
