package httpapi

import (
	"io"
	"log/slog"
	"net"
)

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// What there may be at once, and of one client.
const (
	MaxOpen      = maxOpen
	MaxOpenOfOne = maxOpen / partOfOne
	MaxBodies    = maxBodies
)

// ServeLimited is Serve with so many connections.
func (a *API) ServeLimited(l net.Listener, most int) error { return a.http.Serve(newConns(l, most)) }

// Statuses are the status of each code.
func Statuses() map[Code]int {
	out := map[Code]int{}
	for code, s := range statuses {
		out[code] = s.status
	}
	return out
}
