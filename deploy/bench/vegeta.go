package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// runVegeta uses vegeta to send requests in an open loop, that is, at a constant rate, and waits
// for all responses. It exists to check the results of this package's generator, with which vegeta
// shares no code. Vegeta needs several times as much CPU as the generator. The latency of a request
// counts from when vegeta starts to send it, not from when it is due. Vegeta opens more than
// s.Connections connections if it needs them.
func (s *speedRun) runVegeta(
	to requestTarget, burst time.Duration, rate float64,
) (result burstResult, err error) {
	attacker := vegeta.NewAttacker(vegeta.Workers(uint64(s.Connections)), //nolint:gosec // positive
		vegeta.Connections(s.Connections), vegeta.HTTP2(false), vegeta.Timeout(lastResponseTimeout))
	began := time.Now()
	pacer := vegeta.Rate{Freq: int(rate * 1000), Per: 1000 * time.Second}
	for r := range attacker.Attack(s.vegetaTargeter(to), pacer, burst, "") {
		result.answered++
		result.latencies = append(result.latencies, r.Latency)
		switch {
		case r.Error != "":
			err = fmt.Errorf("vegeta: %s: %s", r.Error, r.Body)
		case bytes.Contains(r.Body, deduplicatedMember):
			err = errors.New("a new delivery was taken for a repeat")
		}
	}
	result.took = time.Since(began)
	slices.Sort(result.latencies)
	return result, err
}

// vegetaTargeter returns a vegeta.Targeter that makes the same requests as this package's
// generator.
func (s *speedRun) vegetaTargeter(to requestTarget) vegeta.Targeter {
	var mu sync.Mutex
	next := newRequest(to, s.BodyBytes)
	return func(t *vegeta.Target) error {
		mu.Lock()
		s.deliveryCount++
		next.setDelivery(s.Seed, s.deliveryCount, uint64(s.Workflows)) //nolint:gosec // positive
		text := string(next.text)
		mu.Unlock()
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return err
		}
		t.Method, t.URL, t.Header = r.Method, "http://"+r.Host+r.RequestURI, r.Header
		t.Body, err = io.ReadAll(r.Body)
		return err
	}
}
