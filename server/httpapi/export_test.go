package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net"
)

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// MaxOpen is how many answers may wait or stream at once.
const MaxOpen = maxOpen

// Statuses are the status of each code.
func Statuses() map[Code]int {
	out := map[Code]int{}
	for code, s := range statuses {
		out[code] = s.status
	}
	return out
}

// The bounds on asking an issuer for its keys.
const (
	KeysFresh   = keysFresh
	KeysLast    = keysLast
	KeysPause   = keysPause
	KeysTimeout = keysTimeout
	ClockSkew   = clockSkew
	MaxToken    = maxToken
)

// DialBy has the issuer asked over connections that dial opens.
func (o *OAuth) DialBy(dial func(context.Context, string, string) (net.Conn, error)) { o.dial = dial }
