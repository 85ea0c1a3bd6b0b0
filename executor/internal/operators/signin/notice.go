package signin

import (
	"net/http"
	"time"
)

const (
	noticeCookie = "hookstart_notice"
	// noticeLifetime is how long a browser keeps a notice for the page that shows it.
	noticeLifetime = time.Minute
	// noticeSigningPurpose is the purpose of a notice's signature. The signature keeps other sites
	// from setting a notice.
	noticeSigningPurpose = "notice"
)

// SetNotice stores a message in a cookie, for the next page that the browser loads.
func (s *SignIn) SetNotice(w http.ResponseWriter, r *http.Request, text string) {
	setCookie(w, r, noticeCookie, s.sessions.signValue(noticeSigningPurpose, text),
		int(noticeLifetime/time.Second), http.SameSiteStrictMode)
}

// TakeNotice removes the message that SetNotice has stored, and returns it. It returns "" if there
// is none.
func (s *SignIn) TakeNotice(w http.ResponseWriter, r *http.Request) (text string) {
	for _, cookie := range r.CookiesNamed(cookieName(r, noticeCookie)) {
		setCookie(w, r, noticeCookie, "", -1, http.SameSiteStrictMode)
		if s.sessions.verifyValue(noticeSigningPurpose, cookie.Value, &text) {
			return text
		}
	}
	return ""
}
