package apiserver

import (
	"net/http"
	"slices"
)

// withCORS allows the pages of the configured origins to read responses. Preflight requests need no
// token, because their response reveals only whether the origin is allowed. Browsers send no cookie
// with cross-origin calls, so a page of another origin needs a token or key.
func (s *server) withCORS(next http.Handler) http.Handler {
	if len(s.AllowedOrigins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if !slices.Contains(s.AllowedOrigins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "ETag, Retry-After, WWW-Authenticate")
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE")
		w.Header().Set("Access-Control-Allow-Headers",
			"Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID")
		w.Header().Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}
