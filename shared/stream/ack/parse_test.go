package ack

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestParse(t *testing.T) {
	t.Parallel()
	e := &Publisher{stream: "EXECUTIONS", ackPrefix: []byte(`{"stream":"EXECUTIONS",`)}
	for text, want := range map[string]Ack{
		`{"stream":"EXECUTIONS","seq":18446744073709551615}`: {
			Sequence: 18446744073709551615,
		},
		`{"stream":"EXECUTIONS","domain":"hub","seq":7,"duplicate":true}`: {
			Sequence:  7,
			Duplicate: true,
		},
		`{"stream":"EXECUTIONS", "seq":7,"duplicate":true}`:       {Sequence: 7, Duplicate: true},
		`{ "stream": "EXECUTIONS", "seq": 7, "duplicate": true }`: {Sequence: 7, Duplicate: true},
		`{"stream":"EXECUTIONS","seq":7,"duplicate": true}`:       {Sequence: 7, Duplicate: true},
		`{"stream":"EXECUTIONS","seq":7,"duplicate": false}`:      {Sequence: 7},
		`{"stream":"EXECUTIONS","seq": 8}`:                        {Sequence: 8},
		`{"duplicate":true,"seq":9,"stream":"EXECUTIONS"}`:        {Sequence: 9, Duplicate: true},
	} {
		if got, err := e.parse(&nats.Msg{Data: []byte(text)}); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, code := range map[string]jetstream.ErrorCode{
		`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"EXECUTIONS","seq":0}`: 10077,
		`{"stream":"EXECUTIONS","seq":1,"error":{"code":409,"err_code":10158}}`:                                        10158,
	} {
		_, err := e.parse(&nats.Msg{Data: []byte(text)})
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != code {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		`{}`, `x`, `{"stream":"OTHER","seq":1}`, `{"stream":"EXECUTIONS","seq":}`,
		`{"stream":"EXECUTIONS"}`,
	} {
		if ack, err := e.parse(&nats.Msg{Data: []byte(text)}); err == nil {
			t.Errorf("%s: %+v", text, ack)
		}
	}
	if _, err := e.parse(&nats.Msg{Header: nats.Header{"Status": {"503"}}}); !errors.Is(err,
		nats.ErrNoResponders) {
		t.Errorf("no responders: %v", err)
	}
}

// BenchmarkParse compares the time of parse with that of encoding/json.
func BenchmarkParse(b *testing.B) {
	e := &Publisher{stream: "EXECUTIONS", ackPrefix: []byte(`{"stream":"EXECUTIONS",`)}
	msg := &nats.Msg{Data: []byte(`{"stream":"EXECUTIONS","seq":123456789}`)}
	b.Run("hookstart", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.parse(msg); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var ack jetstream.PubAck
			if err := json.Unmarshal(msg.Data, &ack); err != nil {
				b.Fatal(err)
			}
		}
	})
}
