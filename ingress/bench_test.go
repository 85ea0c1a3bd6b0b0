package ingress_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hookstart/hookstart/ingress"
	"github.com/hookstart/hookstart/shared/embednats/natstest"
	"github.com/hookstart/hookstart/shared/ops"
	"github.com/hookstart/hookstart/shared/registry"
	"github.com/hookstart/hookstart/shared/registry/edit"
	"github.com/hookstart/hookstart/shared/registry/registrytest"
)

// poster is a client that sends POSTs with 1 KB of JSON, each with a different delivery ID, and
// reads the responses.
type poster struct {
	conn   net.Conn
	reader *bufio.Reader
	head   string
	body   string
}

var deliveries atomic.Int64

func newPoster(b *testing.B, addr, path string) *poster {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	body := `{"hello":"` + strings.Repeat("x", 1000) + `"}`
	return &poster{
		conn: conn, reader: bufio.NewReader(conn), body: body,
		head: "POST " + path +
			" HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nContent-Type: " +
			"application/json\r\nContent-Length: " + strconv.Itoa(len(body)) +
			"\r\nX-GitHub-Delivery: ",
	}
}

func (p *poster) post(b *testing.B) {
	_, err := io.WriteString(p.conn,
		p.head+strconv.FormatInt(deliveries.Add(1), 10)+"\r\n\r\n"+p.body)
	if err != nil {
		b.Error(err)
		return
	}
	status, err := p.reader.ReadString('\n')
	if err != nil || !strings.Contains(status, " 200 ") {
		b.Errorf("%s %v", status, err)
		return
	}
	length := 0
	for {
		line, err := p.reader.ReadString('\n')
		if err != nil || line == "\r\n" {
			break
		}
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	_, _ = p.reader.Discard(length)
}

func flood(b *testing.B, addr, path string) {
	b.SetParallelism(32) // 64 connections on 2 cores
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := newPoster(b, addr, path)
		for pb.Next() {
			p.post(b)
		}
	})
}

// BenchmarkIngress measures the allocations per request, including those of the client, with an
// ingress that logs no requests. To measure throughput, use make bench.
func BenchmarkIngress(b *testing.B) {
	server := natstest.StartProcess(b)
	r := registrytest.Start(b, server.Connect(b))
	ctx := b.Context()
	if _, _, err := r.PutAccount(ctx, "a", "", "ultra"); err != nil {
		b.Fatal(err)
	}
	if _, _, err := r.PutWorkflow(ctx, edit.WorkflowSpec{
		ID:        "bench",
		AccountID: "a",
		RateLimit: &registry.RateLimit{Requests: 1_000_000, Window: 1e9},
		Triggers:  []edit.TriggerSpec{{NodeID: "node"}},
	}); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Activate(ctx, "bench"); err != nil {
		b.Fatal(err)
	}
	log, err := ops.NewLogger("ingress", "warn")
	if err != nil {
		b.Fatal(err)
	}
	ready := make(chan string, 1)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	c := defaults(b, server.URL())
	c.Log = log
	c.OnReady = func(l ingress.ListenAddresses) { ready <- l.Addr }
	go func() { ended <- ingress.Run(running, c) }()
	addr := <-ready
	flood(b, addr, "/webhooks/bench?token="+r.Token(b, "bench", "node"))
	b.StopTimer()
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
