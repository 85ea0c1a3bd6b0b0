package ops

import (
	"context"
	"log/slog"

	"github.com/sirupsen/logrus"
)

// NewSlogLogger returns a logger that writes to log, for packages that support only slog. It
// ignores groups: their attributes become fields of the line, like all others.
func NewSlogLogger(log logrus.FieldLogger) *slog.Logger { return slog.New(slogHandler{log}) }

type slogHandler struct{ log logrus.FieldLogger }

// Enabled implements slog.Handler.
func (h slogHandler) Enabled(_ context.Context, level slog.Level) bool {
	switch log := h.log.(type) {
	case *logrus.Logger:
		return log.IsLevelEnabled(logrusLevel(level))
	case *logrus.Entry:
		return log.Logger.IsLevelEnabled(logrusLevel(level))
	default:
		return true
	}
}

// Handle implements slog.Handler.
func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	fields := make(logrus.Fields, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		fields[a.Key] = a.Value.Resolve().Any()
		return true
	})
	h.log.WithFields(fields).WithTime(r.Time).Log(logrusLevel(r.Level), r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := make(logrus.Fields, len(attrs))
	for _, a := range attrs {
		fields[a.Key] = a.Value.Resolve().Any()
	}
	return slogHandler{h.log.WithFields(fields)}
}

// WithGroup implements slog.Handler.
func (h slogHandler) WithGroup(string) slog.Handler { return h }

func logrusLevel(level slog.Level) logrus.Level {
	switch {
	case level >= slog.LevelError:
		return logrus.ErrorLevel
	case level >= slog.LevelWarn:
		return logrus.WarnLevel
	case level >= slog.LevelInfo:
		return logrus.InfoLevel
	default:
		return logrus.DebugLevel
	}
}
