package apiserver

import (
	"net/http"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

// guarded lets nobody in who is not an operator, not even to learn which paths exist.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known := s.SignIn.Call(r)
		if !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, r, newProblem(api.CodeUnauthorized, "Send the admin token: Authorization: Bearer {admin token}."))
			return
		}
		next.ServeHTTP(w, r.WithContext(signin.WithCaller(r.Context(), caller)))
	})
}
