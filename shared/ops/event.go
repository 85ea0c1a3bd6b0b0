package ops

import (
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Field is one field of a log line about an event.
type Field struct {
	// Name is the field's name in the JSON line.
	Name string

	kind   fieldKind
	text   string
	number float64
}

type fieldKind uint8

const (
	fieldText fieldKind = iota
	fieldNumber
	fieldBool
	fieldJSON // a text that is already JSON
)

// Text returns a Field with a string value.
func Text(name, value string) Field { return Field{Name: name, text: value} }

// Number returns a Field with a numeric value.
func Number[N int | float64](name string, value N) Field {
	return Field{Name: name, kind: fieldNumber, number: float64(value)}
}

// True returns a Field with the value true.
func True(name string) Field { return Field{Name: name, kind: fieldBool} }

// value returns the field's value for logrus.
func (m Field) value() any {
	switch m.kind {
	case fieldNumber:
		return m.number
	case fieldBool:
		return true
	case fieldText, fieldJSON:
	}
	return m.text
}

func (m Field) appendValue(line []byte) []byte {
	switch m.kind {
	case fieldNumber:
		if whole := int64(m.number); float64(whole) == m.number {
			return strconv.AppendInt(line, whole, 10)
		}
		return strconv.AppendFloat(line, m.number, 'f', -1, 64)
	case fieldBool:
		return append(line, "true"...)
	case fieldJSON:
		return append(line, m.text...)
	case fieldText:
	}
	return appendJSONString(line, m.text)
}

// lineBuffers holds buffers in which LogEvent formats lines, for reuse.
var lineBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, 1024)) }}

// LogEvent logs one line about a very frequent event, such as a request. Apart from the order of
// the fields, the line equals the one that log.WithFields would write. If log comes from NewLogger
// and writes JSON lines, LogEvent avoids the maps of logrus, and the lines of several events are
// written together. In measurements, this saves 17 allocations and a tenth of the CPU time of a
// request.
func LogEvent(
	log *logrus.Logger,
	level logrus.Level,
	at time.Time,
	message string,
	members []Field,
) {
	if !log.IsLevelEnabled(level) {
		return
	}
	format, isOurs := log.Formatter.(jsonLineFormatter)
	out, isBuffered := log.Out.(*batchedLineWriter)
	if !isOurs || !isBuffered || len(log.Hooks) > 0 {
		fields := make(logrus.Fields, len(members))
		for _, m := range members {
			fields[m.Name] = m.value()
		}
		log.WithFields(fields).WithTime(at).Log(level, message)
		return
	}
	buffer, isBuffer := lineBuffers.Get().(*[]byte)
	if !isBuffer {
		panic("the pool holds buffers only")
	}
	*buffer = format.appendLine((*buffer)[:0], level, at, message, members)
	out.writeBatched(*buffer, at)
	lineBuffers.Put(buffer)
}
