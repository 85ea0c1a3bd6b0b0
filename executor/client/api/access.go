package api

import "time"

// These are the roles of callers. Each role includes the permissions of the roles before it.
const (
	RoleViewer = "viewer" // reads, but sees no token
	RoleEditor = "editor" // changes workflows, their nodes and tokens; reruns and requeues
	RoleAdmin  = "admin"  // changes accounts and their plans, and lets others in
)

// These are the kinds of callers.
const (
	CallerAdminToken = "admin-token"
	CallerKey        = "key"
	CallerUser       = "user" // signed in at the console by OpenID Connect
)

// WhoAmI describes the caller. Absent values are omitted.
type WhoAmI struct {
	// Kind is CallerAdminToken, CallerKey or CallerUser.
	Kind string `json:"kind" enum:"admin-token,key,user"`
	ID   string `json:"id,omitempty" doc:"The key's, or the user's at their identity provider. Absent: the admin token."`
	Name string `json:"name" doc:"For people." example:"CI of team A"`
	// Role is RoleViewer, RoleEditor or RoleAdmin.
	Role      string `json:"role" enum:"viewer,editor,admin"`
	AccountID string `json:"accountId,omitempty" doc:"The only account that the caller has access to. Absent: all of them." example:"acme"`
}

// PutKey holds the settings of a new key.
type PutKey struct {
	Name      string    `json:"name" minLength:"1" maxLength:"200" doc:"For people: who has it, and what for." example:"CI of team A"`
	Role      string    `json:"role" enum:"viewer,editor,admin" doc:"What it may do. viewer: read, without tokens. editor: also change workflows, their nodes and tokens, rerun and requeue. admin: everything."`
	AccountID string    `json:"accountId,omitempty" pattern:"^([A-Za-z0-9_-]{1,64})?$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" doc:"The only account that it has access to; not with the role admin. Absent or empty: all of them." example:"acme"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" pattern:"^[2-9]" patternDescription:"in the future" doc:"When it stops to work. Absent: never."`
}

// Key is a key of the operators' API. Absent values are omitted.
type Key struct {
	// ID identifies the key in calls. It is not secret.
	ID   string `json:"id" example:"key_q2VnT0pXbWs"`
	Name string `json:"name" doc:"For people." example:"CI of team A"`
	// Role is RoleViewer, RoleEditor or RoleAdmin.
	Role      string `json:"role" enum:"viewer,editor,admin"`
	AccountID string `json:"accountId,omitempty" doc:"The only account that it has access to. Absent: all of them." example:"acme"`
	// CreatedAt is the time at which the key was created.
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero" doc:"When it stops to work. Absent: never."`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero" doc:"When a call was made with it last, within a minute or so. Absent: never."`
}

// NewKey is a key that was just created.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"What to send as Authorization: Bearer. It is shown here only; hookstart keeps a hash." example:"hsk_…"`
}
