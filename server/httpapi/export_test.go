package httpapi

import (
	"io"
	"log/slog"
	"net"
	"strconv"
)

func testLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// What there may be at once, and of one client.
const (
	MaxOpen      = maxOpen
	MaxOpenOfOne = maxOpen / partOfOne
	MaxBodies    = maxBodies
	MaxAnswers   = maxAnswers
)

// AnswerBytes is how many bytes of answers wait for their clients.
func (a *API) AnswerBytes() int { return a.answers.Used() }

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

// MaxGzip is how many answers are compressed at once.
const MaxGzip = maxGzip

// Compressing is how many are.
func Compressing() int32 { return compressing.Load() }

// FillAnswers takes all slots for answers that wait or stream but for some.
func (a *API) FillAnswers(free int) {
	for i := range a.open.Max() - free {
		a.open.Take(strconv.Itoa(i), 1)
	}
}

// OpenAnswers is how many answers wait or stream.
func (a *API) OpenAnswers() int { return a.open.Used() }

// ServeCounted serves l until the API is shut down. It returns how many requests are answered and how many
// bytes of bodies are held.
func (a *API) ServeCounted(l net.Listener) (held func() (requests, bodies int)) {
	c := newConns(l, maxConns)
	go func() { _ = a.http.Serve(c) }()
	return func() (int, int) { return c.requests.Used(), a.bodies.Used() }
}
