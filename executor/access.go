package executor

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hookstart/hookstart/executor/internal/operators/signin"
	"github.com/hookstart/hookstart/shared/program"
)

// maxOIDCSessionLifetime is the maximum lifetime of a console session that was started by signing
// in through an OpenID Connect provider.
const maxOIDCSessionLifetime = 12 * time.Hour

// oidcProvider returns the OpenID Connect provider that the flags configure, or nil if they
// configure none. It returns an error if the flags contradict each other or a value is invalid.
func (c *Config) oidcProvider() (*signin.OIDC, error) {
	if c.OIDCIssuer == "" {
		if c.OIDCClientID != "" || c.OIDCClientSecretFile != "" || len(c.OIDCRole) > 0 {
			return nil,
				errors.New("--oidc-client-id, --oidc-client-secret-file and --oidc-role need " +
					"--oidc-issuer")
		}
		return nil, nil
	}
	if err := program.CheckPublicURL("--oidc-issuer", c.OIDCIssuer); err != nil {
		return nil, err
	}
	if c.OIDCClientID == "" || len(c.OIDCRole) == 0 {
		return nil,
			errors.New("--oidc-issuer needs --oidc-client-id, and --oidc-role: whom no role " +
				"matches has no access")
	}
	if c.OIDCSession < 0 || c.OIDCSession > maxOIDCSessionLifetime ||
		(c.OIDCSession > 0 && c.OIDCSession < time.Second) {
		return nil,
			fmt.Errorf("--oidc-session must be between 1s and %s, not %s", maxOIDCSessionLifetime,
				c.OIDCSession)
	}
	config := signin.OIDCConfig{
		Issuer:          c.OIDCIssuer,
		ClientID:        c.OIDCClientID,
		SessionLifetime: c.OIDCSession,
	}
	for _, text := range c.OIDCRole {
		rule, err := signin.ParseRoleRule(text)
		if err != nil {
			return nil, fmt.Errorf("--oidc-role: %w", err)
		}
		config.RoleRules = append(config.RoleRules, rule)
	}
	if c.OIDCClientSecretFile != "" {
		secret, err := os.ReadFile(c.OIDCClientSecretFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
		if config.ClientSecret = strings.TrimSpace(string(secret)); config.ClientSecret == "" {
			return nil, fmt.Errorf("--oidc-client-secret-file: %s is empty", c.OIDCClientSecretFile)
		}
	}
	return signin.NewOIDC(config), nil
}

// checkAPIOrigins returns an error unless every origin in --api-origins has exactly the form that
// browsers send in the Origin header: scheme, host and port, in lower case.
func (c *Config) checkAPIOrigins() error {
	for _, origin := range c.APIOrigins {
		u, err := url.Parse(origin)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" ||
			origin != u.Scheme+"://"+u.Host || strings.ToLower(origin) != origin {
			return fmt.Errorf("--api-origins: %q must be like https://app.example.com: scheme, "+
				"host and port in lower case, nothing after them", origin)
		}
	}
	return nil
}
