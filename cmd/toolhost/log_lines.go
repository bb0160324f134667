package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// lineHandler writes the further lines of texts, such as a panic's stack, below the log
// record. It is for terminals: in a log for programs, each record is on one line.
type lineHandler struct {
	slog.Handler
	w  io.Writer
	mu *sync.Mutex // held while writing a record and its lines
}

func newLineHandler(h slog.Handler, w io.Writer) lineHandler {
	return lineHandler{h, w, new(sync.Mutex)}
}

// Handle implements [slog.Handler].
func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	message, more, _ := strings.Cut(r.Message, "\n")
	mark, _, _ := strings.Cut(message, " | ") // the plugin
	below := marked(mark, more)
	shown := slog.NewRecord(r.Time, r.Level, message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); strings.Contains(text, "\n") {
			below = append(below, marked(a.Key, text)...)
		} else {
			shown.AddAttrs(a)
		}
		return true
	})

	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.Handler.Handle(ctx, shown)
	if err == nil && len(below) > 0 {
		_, err = h.w.Write(below)
	}
	return err
}

// marked returns the lines of a text, each after a mark, so that none of them can pass
// for a record. An empty text has no lines.
func marked(mark, text string) []byte {
	if text == "" {
		return nil
	}
	var out bytes.Buffer
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		out.Write(noteLine("%s | %s", mark, line))
	}
	return out.Bytes()
}

// WithAttrs implements [slog.Handler].
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineHandler{h.Handler.WithAttrs(attrs), h.w, h.mu}
}

// WithGroup implements [slog.Handler].
func (h lineHandler) WithGroup(name string) slog.Handler {
	return lineHandler{h.Handler.WithGroup(name), h.w, h.mu}
}
