package execution_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hookstart/hookstart/shared/execution"
)

func TestValidJSON(t *testing.T) {
	deep := strings.Repeat("[", 51_200) + strings.Repeat("]", 51_200)
	mixed := strings.Repeat(`{"a":[`, 20_000) + "1" + strings.Repeat(`]}`, 20_000)
	valid := []string{
		`{}`, `[]`, `null`, `true`, `false`, `0`, `-0`, `-1.5e+10`, `1E400`, `"a"`, `""`,
		" \t\r\n[ ] \t\r\n", `{ "a" : [ 1 , { } , [ ] ] , "a" : null }`, `"\ud800"`, `"\u0000\/\b"`,
		`"\uD83D\uDE00"`, "\"\u2028\uFFFD\U0001F600\x7f\"", `[1,[2,[3,{"x":{"y":[]}}]]]`, deep,
		mixed,
	}
	for _, text := range valid {
		if !execution.ValidJSON([]byte(text)) {
			t.Errorf("refused %.60q", text)
		}
	}
	invalid := []string{
		``, ` `, `{`, `}`, `[`, `]`, `[]]`, `[}`, `{]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`,
		`[,1]`, `{,}`, `{a:1}`,
		`'a'`, `"a`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"", "\"\xff\"",
		"\"\xed\xa0\x80\"", "\"\xc0\xaf\"",
		`01`, `-`, `+1`, `1.`, `.5`, `1e`, `1e+`, `0x1`, `NaN`, `Infinity`, `nul`, `nullx`,
		`truefalse`, `1 2`, `{} x`, `[] []`,
		"\ufeff{}", "{}\x00", "\x00", "\v1", "\u00a01", "//c\n1", `{"a":1 "b":2}`, `[1 2]`,
		`["a":1]`,
		deep[:len(deep)-1], deep + "]", mixed[:len(mixed)-1] + "]",
	}
	for _, text := range invalid {
		if execution.ValidJSON([]byte(text)) {
			t.Errorf("accepted %.60q", text)
		}
	}
}

// ValidJSON scans strings eight bytes at a time. The test therefore tries every byte value at each
// position of a group of eight bytes, with different bytes around it.
func TestValidJSONReadsEachByteOfAString(t *testing.T) {
	for before := range 17 {
		for c := range 256 {
			for _, after := range []string{"", "a", "12345678", "\x80", "1234567\n"} {
				text := []byte(`"` + strings.Repeat("~ !", before)[:before] + string([]byte{
					byte(c),
				}) + after + `"`)
				want := json.Valid(text) && utf8.Valid(text)
				if got := execution.ValidJSON(text); got != want {
					t.Errorf("ValidJSON(%q) = %t, want %t", text, got, want)
				}
			}
		}
	}
}

// FuzzValidJSON compares ValidJSON with encoding/json, but only where encoding/json follows the
// RFC: for valid UTF-8, and up to its maximum depth of 10,000.
func FuzzValidJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e-3,"x\u00e9",null,true]}`, `[[[]]]`, "\"\xff\"", `-0.0`, "\ufeff1", `"\ud800"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 9_000 {
			return
		}
		want := json.Valid(text) && utf8.Valid(text)
		if got := execution.ValidJSON(text); got != want {
			t.Errorf("ValidJSON(%q) = %t, want %t", text, got, want)
		}
	})
}

func BenchmarkValidJSON(b *testing.B) {
	long := []byte(`{"hello":"` + strings.Repeat("x", 1000) + `"}`)
	b.Run("long string", func(b *testing.B) {
		b.SetBytes(int64(len(long)))
		for b.Loop() {
			execution.ValidJSON(long)
		}
	})
	text := []byte(`{"items":[` +
		strings.Repeat(`{"id":12345,"name":"a person's name","ok":true,"note":null},`, 16) + `{}]}`)
	b.SetBytes(int64(len(text)))
	b.Run("hookstart", func(b *testing.B) {
		for b.Loop() {
			execution.ValidJSON(text)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			_ = json.Valid(text) && utf8.Valid(text)
		}
	})
}
