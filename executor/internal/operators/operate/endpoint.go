package operate

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/hookstart/hookstart/executor/client/api"
	"github.com/hookstart/hookstart/executor/internal/operators/reachability"
	"github.com/hookstart/hookstart/shared/registry/consistency"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/sender"
	"github.com/hookstart/hookstart/shared/webhook"
)

// CheckPublicURL checks whether the public URL reaches an ingress of this installation. The result
// of a recent check may be reused. A failed check is a result, not an error.
func (s *Service) CheckPublicURL(ctx context.Context, caller Caller) (api.PublicURL, error) {
	return checkAndCall(ctx, s, caller, newAccessRule("CheckPublicURL", accessUnrestricted),
		func(ctx context.Context) (api.PublicURL, error) {
			found := s.config.Reachability.Check(ctx)
			return api.PublicURL{
				URL:             found.URL,
				OnlyThisMachine: found.Loopback,
				State:           string(found.State),
				Detail:          found.Detail,
				CheckedAt:       found.CheckedAt.UTC(),
			}, nil
		})
}

// Members lists the running executors and ingresses, by role and instance.
func (s *Service) Members(ctx context.Context, caller Caller) (api.Members, error) {
	return checkAndCall(ctx, s, caller, newAccessRule("Members", accessToAllAccounts),
		func(ctx context.Context) (api.Members, error) {
			all := api.Members{Items: []api.Member{}}
			reading, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			if version, err := s.config.Store.DatabaseSchemaVersion(reading); err == nil {
				// If the database does not respond, Members omits its schema version: the rest of
				// the response is still useful.
				all.Database = version
			}
			for _, m := range s.config.Membership.Members() {
				ids := m.Info.KeyIDs
				if ids == nil {
					ids = []string{}
				}
				all.Items = append(all.Items, api.Member{
					Instance:         m.InstanceID,
					Role:             m.Role,
					Version:          m.Info.Version,
					Schema:           m.Info.SchemaVersion,
					KeyIDs:           ids,
					RegistryRevision: m.Revision,
				})
			}
			return all, nil
		})
}

// LoopbackOrigin returns the scheme and host of a URL that is reachable only from its own machine,
// or "" for any other URL.
func LoopbackOrigin(base string) string {
	u, err := url.Parse(base)
	if err != nil || !reachability.IsLoopback(base) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// webhookEndpoint is the configuration of the webhook endpoint, as senders see it.
type webhookEndpoint struct {
	publicURL string // without a trailing slash
	// publicURLConfigured reports whether the public URL is configured. Without a configured public
	// URL, ingresses cannot verify signatures over the URL.
	publicURLConfigured bool
	deliveryIDHeaders   []string
	maxBodyBytes        int64
}

// defaultWebhookEndpoint is the endpoint of an ingress with default settings. It is used while no
// ingress is alive.
var defaultWebhookEndpoint = webhookEndpoint{
	publicURL: "http://127.0.0.1:8080",
	deliveryIDHeaders: append(webhook.PriorityDeliveryIDHeaders(),
		webhook.DefaultDeliveryIDHeaders()...),
	maxBodyBytes: webhook.DefaultMaxBodyBytes,
}

// ingressEndpoint combines the settings of the live ingresses. If they differ, it uses the smallest
// body limit, and the public URL and the delivery ID headers of the first ingress that has them.
// Config.PublicURL takes precedence over the ingresses' public URL.
func (s *Service) ingressEndpoint() webhookEndpoint {
	e := defaultWebhookEndpoint
	ingresses := s.config.Membership.IngressSettings()
	// Sort the ingresses, whose order is random, to return the same result for each call.
	slices.SortFunc(ingresses, func(a, b *consistency.IngressSettings) int {
		if byURL := strings.Compare(a.PublicURL, b.PublicURL); byURL != 0 {
			return byURL
		}
		return slices.Compare(a.DeliveryIDHeaders, b.DeliveryIDHeaders)
	})
	for i, settings := range ingresses {
		if i == 0 || settings.MaxBodyBytes < e.maxBodyBytes {
			e.maxBodyBytes = settings.MaxBodyBytes
		}
	}
	for _, settings := range slices.Backward(ingresses) { // the settings of the first win
		if len(settings.DeliveryIDHeaders) > 0 {
			e.deliveryIDHeaders = settings.DeliveryIDHeaders
		}
		if settings.PublicURL != "" {
			e.publicURL, e.publicURLConfigured = strings.TrimRight(settings.PublicURL, "/"), true
		}
	}
	if s.config.PublicURL != "" {
		e.publicURL, e.publicURLConfigured = s.config.PublicURL, true
	}
	return e
}

// deliveryIDSources returns the places in a request, such as header:X-Id, in which an ingress looks
// for the delivery ID, in this order: the places that the sender signs, the headers in
// webhook.PriorityDeliveryIDHeaders, other places that the sender uses, and the remaining
// configured headers. headers holds the names of the sources that are a single header. info is nil
// if the node has no sender.
func (e webhookEndpoint) deliveryIDSources(info *edit.SenderInfo) (headers, sources []string) {
	first := 0
	for first < len(e.deliveryIDHeaders) &&
		slices.Contains(webhook.PriorityDeliveryIDHeaders(), e.deliveryIDHeaders[first]) {
		first++
	}
	for _, name := range e.deliveryIDHeaders {
		sources = append(sources, headerSourcePrefix+name)
	}
	if info != nil {
		// Ignore the result that reports whether the preset is known: an unknown preset adds no
		// sources.
		signed, other, _ := sender.DeliveryIDSources(info.Preset, info.Settings)
		rest := slices.DeleteFunc(slices.Clone(sources[first:]), func(source string) bool {
			return slices.ContainsFunc(slices.Concat(signed, other), func(own string) bool {
				return strings.EqualFold(own, source)
			})
		})
		sources = slices.Concat(signed, sources[:first], other, rest)
	}
	for _, source := range sources {
		if name, ok := strings.CutPrefix(source, headerSourcePrefix); ok && !strings.Contains(name,
			" ") {
			headers = append(headers, name)
		}
	}
	return headers, sources
}

// headerSourcePrefix is the prefix of a source that is a header.
const headerSourcePrefix = "header:"
