package api

import "time"

// Roles of callers. Each role includes the permissions of the roles listed before it.
const (
	RoleViewer = "viewer" // reads, but sees no token
	RoleEditor = "editor" // changes workflows, their nodes and tokens; reruns and requeues
	RoleAdmin  = "admin"  // changes accounts and plans, manages keys, and reads the audit log
)

// Values of WhoAmI.Kind, which say how the caller is authenticated.
const (
	CallerAdminToken = "admin-token"
	CallerKey        = "key"
	CallerUser       = "user" // a person who signed in to the console with OpenID Connect
)

// WhoAmI describes the caller of the API. Absent values are omitted from the JSON.
type WhoAmI struct {
	// Kind is CallerAdminToken, CallerKey or CallerUser.
	Kind string `json:"kind" enum:"admin-token,key,user"`
	ID   string `json:"id,omitempty" doc:"The ID of the key, or of the user at the identity provider. Absent: the caller used the admin token."`
	Name string `json:"name" doc:"A name for people to read. hookstart does not interpret it." example:"CI of team A"`
	// Role is RoleViewer, RoleEditor or RoleAdmin.
	Role      string `json:"role" enum:"viewer,editor,admin"`
	AccountID string `json:"accountId,omitempty" doc:"The only account to which the caller has access. Absent: the caller has access to all accounts." example:"acme"`
}

// PutKey holds the settings of a key to be created.
type PutKey struct {
	Name      string    `json:"name" minLength:"1" maxLength:"200" doc:"A text for people: who has the key, and what it is used for." example:"CI of team A"`
	Role      string    `json:"role" enum:"viewer,editor,admin" doc:"What the key allows. viewer: reading, but no tokens. editor: also changing workflows, their nodes and tokens, and rerunning and requeueing executions. admin: everything."`
	AccountID string    `json:"accountId,omitempty" pattern:"^([A-Za-z0-9_-]{1,64})?$" patternDescription:"1 to 64 of the characters A-Z a-z 0-9 _ -" doc:"The only account to which the key gives access. It cannot be combined with the role admin. Absent or empty: the key gives access to all accounts." example:"acme"`
	ExpiresAt time.Time `json:"expiresAt,omitzero" pattern:"^[2-9]" patternDescription:"in the future" doc:"When the key expires. Absent: it does not expire."`
}

// Key is a key of the operators' API, without its secret. Absent values are omitted from the JSON.
type Key struct {
	// ID identifies the key in calls. It is not secret.
	ID   string `json:"id" example:"key_q2VnT0pXbWs"`
	Name string `json:"name" doc:"A name for people to read. hookstart does not interpret it." example:"CI of team A"`
	// Role is RoleViewer, RoleEditor or RoleAdmin.
	Role      string `json:"role" enum:"viewer,editor,admin"`
	AccountID string `json:"accountId,omitempty" doc:"The only account to which the key gives access. Absent: it gives access to all accounts." example:"acme"`
	// CreatedAt is when the key was created.
	CreatedAt  time.Time `json:"createdAt"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero" doc:"When the key expires. Absent: it does not expire."`
	LastUsedAt time.Time `json:"lastUsedAt,omitzero" doc:"When the key was last used for a call, to within about a minute. Absent: it was never used."`
}

// NewKey is a key that has just been created, with its secret.
type NewKey struct {
	Key
	Secret string `json:"key" doc:"The text to send in the header Authorization: Bearer. It is returned only by this call; hookstart stores a hash of it." example:"hsk_…"`
}
