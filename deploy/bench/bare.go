package bench

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/julienschmidt/httprouter"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hookstart/hookstart/shared/embednats"
	"github.com/hookstart/hookstart/shared/stream"
)

// runBarePublisher serves the requests of variantBare, the baseline of the comparison. It publishes
// the body of each request, without any checks, IDs, metrics or logging.
func runBarePublisher(ctx context.Context, natsURL string) error {
	nc, err := nats.Connect(natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	return servePublisher(ctx, roleBare, nc)
}

// runBareEmbedded is like runBarePublisher, but runs the NATS server in this process instead of
// connecting to a separate one. The server stores its data in dir.
func runBareEmbedded(ctx context.Context, dir string) error {
	server, err := embednats.Start(embednats.Options{StoreDir: dir, NoListener: true})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := nats.Connect("", server.InProcess())
	if err != nil {
		return err
	}
	defer nc.Close()
	return servePublisher(ctx, roleEmbedded, nc)
}

// servePublisher serves HTTP requests until ctx ends. It publishes the body of each request through
// nc, to a stream that has the settings that hookstart uses by default. role is the name of this
// program in its ready line.
func servePublisher(ctx context.Context, role string, nc *nats.Conn) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := stream.EnsureSharedStreams(ctx, js, stream.DefaultSettings); err != nil {
		return err
	}
	return serve(ctx, role, func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		future, err := js.PublishMsgAsync(&nats.Msg{Subject: bareSubject, Data: body})
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		select {
		case <-future.Ok():
			_, _ = io.WriteString(w, bareAnswer)
		case <-future.Err(): //nolint:errcheck // that there is one is enough
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// runHTTP is like runBarePublisher, but publishes nothing. It shows the cost of HTTP alone.
func runHTTP(ctx context.Context) error {
	return serve(ctx, roleHTTP, func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return
		}
		_, _ = io.WriteString(w, bareAnswer)
	})
}

const (
	firstWebhookPath = "/webhooks/bench000000"
	bareSubject      = "executions.start.default.bench000000.node"
	bareAnswer       = `{"success":true}`
)

func serve(ctx context.Context, role string, handle httprouter.Handle) error {
	router := httprouter.New()
	router.POST("/webhooks/:workflow", handle)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: router} //nolint:gosec // on loopback, and as bare as can be
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	if err := announceReady(ctx, role, listener.Addr().String()); err != nil {
		return err
	}
	_ = web.Serve(listener)
	return nil
}
