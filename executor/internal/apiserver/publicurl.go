package apiserver

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hookstart/hookstart/executor/api"
	"github.com/hookstart/hookstart/executor/internal/signin"
)

func (s *server) routePublicURL(to huma.API) {
	register(to, call{
		method: http.MethodGet, path: "/public-url", id: "check-public-url", tag: tagInstallation,
		summary: "Check the public URL",
		description: "The executor sends a signed request there, which starts nothing and uses up nobody's rate limit, and which " +
			"only an ingress of this installation can answer. It follows no redirect.",
	}, s.checkPublicURL)
}

func (s *server) checkPublicURL(ctx context.Context, _ *struct{}) (*output[api.PublicURL], error) {
	return answered(s.Operate.CheckPublicURL(ctx, signin.Caller(ctx)))
}
