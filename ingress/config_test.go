package ingress_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/webhook"
)

// The defaults in the struct tags equal the constants that all programs share.
func TestDefaultsAreTheSharedOnes(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"DeliveryIDHeaders": strings.Join(webhook.DefaultDeliveryIDHeaders(), ","),
		"MaxBodyBytes":      strconv.Itoa(webhook.DefaultMaxBodyBytes),
	} {
		f, _ := reflect.TypeFor[ingress.Config]().FieldByName(field)
		if got := f.Tag.Get("default"); got != want {
			t.Errorf("%s: the flag's default is %q, want %q", field, got, want)
		}
	}
}
