package apiserver

import (
	"errors"
	"net/http"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/requestlog"
	"github.com/hookstart/hookstart/executor/internal/operators/signin"
)

// requireOperator rejects requests without valid credentials before anything else, so that
// strangers cannot learn which paths exist.
func (s *server) requireOperator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.SignIn.APICaller(r)
		if errors.Is(err, signin.ErrUnauthenticated) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeProblem(w, r,
				newProblem(api.CodeUnauthorized,
					"Send the admin token, or a key that was neither revoked nor has expired: "+
						"Authorization: Bearer {token or key}."))
			return
		}
		if err != nil {
			p := problemOf(err)
			logProblem(r.Context(), p, err)
			p.write(w)
			return
		}
		fields := requestlog.FromContext(r.Context()).Fields
		fields["caller"], fields["caller_id"] = string(caller.Kind), caller.ID
		ctx := signin.WithSessionExpiry(signin.WithCaller(r.Context(), caller),
			s.SignIn.SessionExpiresAt(r))
		next.ServeHTTP(w, r.WithContext(signin.WithSessionCheck(ctx, s.SignIn.SessionCheck(r))))
	})
}
