package ops

import (
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
)

// handler serves the operations listener:
//
//	GET /metrics       for Prometheus
//	GET /healthz       200 as long as the process lives
//	GET /readyz        200, or 503 with the reasons
//	GET /log-level     the log's level
//	PUT /log-level     sets it, until the process ends: the body is the level
//	GET /debug/pprof/  profiles for go tool pprof
func (o *Ops) handler(log *logrus.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := o.Readiness.NotReadyReasons(); len(reasons) > 0 {
			writeText(w, http.StatusServiceUnavailable, strings.Join(reasons, "\n")+"\n")
			return
		}
		writeText(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /log-level", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, log.GetLevel().String()+"\n")
	})
	mux.HandleFunc("PUT /log-level", func(w http.ResponseWriter, r *http.Request) {
		setLevel(w, r, log)
	})

	// There is no /debug/pprof/cmdline, because the command line may contain the admin token.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// refuseHostNames refuses requests whose Host is neither an IP address nor localhost. Otherwise a
// web page whose host name resolves to this machine could make a visitor's browser read profiles.
func refuseHostNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if err != nil && host != "" && !strings.EqualFold(host, "localhost") {
			// A request without a host is permitted: HTTP/1.0 does not require one. Such a request
			// cannot come from a web page, because browsers always send the host.
			writeText(w, http.StatusMisdirectedRequest,
				"this listener is on loopback: ask for its address or for localhost\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// setLevel sets the log level to the request's body, which must be one of the values that
// --log-level accepts.
func setLevel(w http.ResponseWriter, r *http.Request, log *logrus.Logger) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	if err != nil {
		writeText(w, http.StatusBadRequest, "send the level alone: "+logLevelNames+"\n")
		return
	}
	level, err := logrus.ParseLevel(strings.TrimSpace(string(body)))
	if err != nil {
		writeText(w, http.StatusBadRequest, "no such level: use "+logLevelNames+"\n")
		return
	}
	before := log.GetLevel()
	log.SetLevel(level)
	// Log the change as a warning, or as an error if the new level omits warnings. The line
	// explains to readers of the log why it contains more or fewer lines from here on.
	log.WithFields(logrus.Fields{
		"from": before.String(),
		"to":   level.String(),
	}).Log(max(logrus.ErrorLevel, min(level, logrus.WarnLevel)),
		"log level changed")
	writeText(w, http.StatusOK, level.String()+"\n")
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}
