package signin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/hookstart/hookstart/executor/internal/operators/operate"
	"github.com/hookstart/hookstart/shared/execution"
)

// RoleRule assigns a role to users who have a claim with a certain value.
type RoleRule struct {
	Claim     string       // name of the claim
	Value     string       // value of the claim or, if the claim is a list, of one element
	Role      operate.Role // role of matching users
	AccountID string       // the only account that matching users can access; "" means all
}

// ParseRoleRule parses a rule such as groups=team-a:editor@acme or email=eve@example.com:admin. The
// role, with an optional account, follows the last colon.
func ParseRoleRule(text string) (r RoleRule, err error) {
	claim, rest, ok := strings.Cut(text, "=")
	at := strings.LastIndexByte(rest, ':')
	if !ok || claim == "" || at < 1 {
		return r,
			fmt.Errorf("%q must be like groups=team-a:editor@account, or groups=ops:admin", text)
	}
	role, accountID, hasAccount := strings.Cut(rest[at+1:], "@")
	r = RoleRule{Claim: claim, Value: rest[:at], AccountID: accountID}
	var known bool
	switch r.Role, known = operate.ParseRole(role); {
	case !known:
		return r, fmt.Errorf("%q: there is no role %q: viewer, editor and admin are", text, role)
	case hasAccount && r.Role == operate.RoleAdmin:
		return r,
			fmt.Errorf("%q: an admin has access to all accounts: leave out @%s", text, accountID)
	case hasAccount && !execution.ValidName(accountID):
		return r,
			fmt.Errorf("%q: an account's ID has 1 to 64 of the characters A-Z a-z 0-9 _ -", text)
	}
	return r, nil
}

// String returns the rule in the form that ParseRoleRule accepts.
func (r RoleRule) String() string {
	text := r.Claim + "=" + r.Value + ":" + string(r.Role)
	if r.AccountID != "" {
		text += "@" + r.AccountID
	}
	return text
}

// firstMatchingRule returns the first rule that matches the claims, and reports whether there is
// one.
func firstMatchingRule(rules []RoleRule, claims map[string]any) (RoleRule, bool) {
	at := slices.IndexFunc(rules, func(r RoleRule) bool { return r.matches(claims) })
	if at < 0 {
		return RoleRule{}, false
	}
	return rules[at], true
}

func (r RoleRule) matches(claims map[string]any) bool {
	// Some providers let users claim any address, so only a verified address counts.
	if r.Claim == "email" && claims["email_verified"] != true {
		return false
	}
	return claimContains(lookupClaim(claims, r.Claim), r.Value)
}

// needsUserInfo reports whether the user info is needed to find the first matching rule. It is
// needed if the ID token lacks a claim that decides whether a rule matches, and no earlier rule
// matches.
func needsUserInfo(rules []RoleRule, claims map[string]any) bool {
	for _, r := range rules {
		if r.matches(claims) {
			return false
		}
		unverified := r.Claim == "email" && claims["email_verified"] == nil &&
			claimContains(claims["email"], r.Value)
		if unverified || lookupClaim(claims, r.Claim) == nil {
			return true
		}
	}
	return false
}

// lookupClaim returns a claim by its name, or by its path in nested claims, such as
// realm_access.roles. It returns nil if there is no such claim.
func lookupClaim(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	first, rest, nested := strings.Cut(name, ".")
	inner, ok := claims[first].(map[string]any)
	if !nested || !ok {
		return nil
	}
	return lookupClaim(inner, rest)
}

// claimContains reports whether a claim equals value, or is a list that contains it.
func claimContains(claim any, value string) bool {
	switch claim := claim.(type) {
	case string:
		return claim == value
	case bool:
		return fmt.Sprint(claim) == value
	case []any:
		return slices.ContainsFunc(claim, func(item any) bool {
			return claimText(item) == value && value != ""
		})
	default:
		return false
	}
}

// claimText returns claim if it is a string, otherwise "".
func claimText(claim any) string {
	value, _ := claim.(string)
	return value
}

// maxUserNameLength is the maximum length, in characters, of a user's name from a provider. The
// limit exists because the name is stored in a cookie.
const maxUserNameLength = 100

// userNameFromClaims returns a user's name, shortened to maxUserNameLength. The name is the first
// of the claims name, preferred_username, email and sub that is not empty. Control characters, and
// characters that change the direction of the text around them, are replaced.
func userNameFromClaims(claims map[string]any) string {
	name := []rune(
		replaceInvisible(cmp.Or(claimText(claims["name"]), claimText(claims["preferred_username"]),
			claimText(claims["email"]), claimText(claims["sub"]))),
	)
	return string(name[:min(len(name), maxUserNameLength)])
}

// replaceInvisible replaces control characters, and characters that change the direction of text.
func replaceInvisible(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}
