package guest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/abi"
)

// Logger writes records for the operator; the model never sees them. Its methods take a
// message and key-value pairs, like those of log/slog, which is too large to link here.
type Logger struct{ call *Call }

// Log returns the log of the call.
func (c *Call) Log() Logger { return Logger{c} }

// Debug writes a record for debugging.
func (l Logger) Debug(message string, pairs ...any) { l.write(abi.StreamDebug, message, pairs) }

// Info writes a record of a normal event.
func (l Logger) Info(message string, pairs ...any) { l.write(abi.StreamInfo, message, pairs) }

// Warn writes a record of something that may be wrong.
func (l Logger) Warn(message string, pairs ...any) { l.write(abi.StreamWarn, message, pairs) }

// Error writes a record of something that is wrong.
func (l Logger) Error(message string, pairs ...any) { l.write(abi.StreamErrorLog, message, pairs) }

func (l Logger) write(s abi.Stream, message string, pairs []any) {
	var b strings.Builder
	b.WriteString(message)
	for len(pairs) > 0 {
		key, value := "!BADKEY", pairs[0]
		if k, ok := value.(string); ok && len(pairs) > 1 {
			key, value, pairs = k, pairs[1], pairs[1:]
		}

		pairs = pairs[1:]
		text := fmt.Sprint(value)
		if text == "" || strings.ContainsAny(text, " \t\r\n\"=") {
			text = strconv.Quote(text)
		}
		b.WriteString(" " + key + "=" + text)
	}

	_ = l.call.Write(s, []byte(b.String())) // logging must not change what a tool does
}
