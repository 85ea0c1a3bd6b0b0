package storetest

import (
	"testing"
	"time"

	"github.com/hookstart/hookstart/executor/internal/store"
)

var sessionTests = map[string]func(*testing.T, store.Store){
	"an ended session stays ended until it would have ended by itself": func(
		t *testing.T, s store.Store,
	) {
		ended := func(id string, want bool) {
			t.Helper()
			if ended, err := s.SessionEnded(t.Context(), id); err != nil || ended != want {
				t.Errorf("%s: %v, %v", id, ended, err)
			}
		}
		end := func(id string, until, now time.Time) {
			t.Helper()
			if err := s.EndSession(t.Context(), id, until, now); err != nil {
				t.Fatal(err)
			}
		}
		ended("a", false)
		for range 2 {
			end("a", epoch.Add(time.Hour), epoch)
		}
		ended("a", true)
		ended("b", false)
		end("b", epoch.Add(2*time.Hour), epoch.Add(time.Hour))
		ended("a", true) // the session would expire at this moment
		end("c", epoch.Add(3*time.Hour), epoch.Add(time.Hour+time.Second))
		ended("a", false)
		ended("b", true)
		ended("c", true)
	},
}
