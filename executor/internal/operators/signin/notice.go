package signin

import (
	"net/http"
	"time"
)

const (
	noticeCookie = "hookstart_notice"
	// noticeLifetime is how long a notice is valid: the next page must be loaded within this time.
	noticeLifetime = time.Minute
	// noticeSigningPurpose is the purpose for which notices are signed: see signValue. They are
	// signed so that other sites cannot make the console show a notice.
	noticeSigningPurpose = "notice"
)

// notice is the content of a signed cookie: a message that the next page shows once.
type notice struct {
	Text         string `json:"text"`
	Ends         int64  `json:"ends"`    // Unix seconds
	SessionNonce string `json:"session"` // nonce of the session in which the notice is shown
}

// SetNotice stores a message in a cookie, for the next page that the browser loads in this session.
func (s *Authenticator) SetNotice(w http.ResponseWriter, r *http.Request, text string) {
	sess, _ := s.sessions.fromRequest(r)
	ends := s.sessions.now().Add(noticeLifetime).Unix()
	setCookie(w, r, noticeCookie,
		s.sessions.signValue(noticeSigningPurpose, notice{text, ends, sess.Nonce}),
		int(noticeLifetime/time.Second), http.SameSiteStrictMode)
}

// TakeNotice returns the message that SetNotice has stored for this session, and removes it. It
// returns "" if there is no message, or if the message is too old.
func (s *Authenticator) TakeNotice(w http.ResponseWriter, r *http.Request) string {
	sess, _ := s.sessions.fromRequest(r)
	for _, cookie := range r.CookiesNamed(cookieName(r, noticeCookie)) {
		setCookie(w, r, noticeCookie, "", -1, http.SameSiteStrictMode)
		var n notice
		if s.sessions.verifyValue(noticeSigningPurpose, cookie.Value, &n) &&
			n.SessionNonce == sess.Nonce && s.sessions.now().Unix() < n.Ends {
			return n.Text
		}
	}
	return ""
}
