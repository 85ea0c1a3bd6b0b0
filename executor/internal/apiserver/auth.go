package apiserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/operate"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// guarded lets nobody in who is not an operator, not even to learn which paths exist.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.hasAdminToken(r) && (s.Authorized == nil || !s.Authorized(r)) {
			if r.Header.Get("Authorization") != "" && s.Failures != nil {
				s.Failures.Failed(r.Context(), signin.AtAPI, r.RemoteAddr)
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			eventOf(r.Context()).answer(w, newProblem(api.CodeUnauthorized, "Send the admin token: Authorization: Bearer {admin token}."))
			return
		}
		next.ServeHTTP(w, r.WithContext(signin.WithCaller(r.Context(), operate.Caller{Kind: operate.AdminToken})))
	})
}

// hasAdminToken compares hashes, in constant time: neither the token's content nor its
// length shows in how long that takes.
func (s *server) hasAdminToken(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := sha256.Sum256([]byte(strings.Trim(token, " ")))
	same := subtle.ConstantTimeCompare(given[:], s.adminToken[:]) == 1
	return same && strings.EqualFold(scheme, "Bearer") && s.AdminToken != ""
}
