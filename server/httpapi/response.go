package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// response is an answer that is written piece by piece, each of which the
// client has to take in time. It is compressed if that pays and the client takes
// it. Whether it pays shows when its size is known, or the first bytes are
// there: until then the head is held back.
type response struct {
	http.ResponseWriter
	status int
	begun  bool                                    // the handler has begun to answer
	sent   bool                                    // the head is with net/http
	gzip   bool                                    // the client takes it
	head   bool                                    // no body is to be sent
	last   bool                                    // of its connection: what follows a body in chunks may be meant as part of it by whoever passed it on
	keep   func(n int) (release func(), err error) // says whether so many bytes may wait for the client; nil: they may
	held   int                                     // bytes that have room already, see hold
	after  []func()                                // called when all is written
	zip    *compressor
	rest   int // bytes that were announced and did not come yet; only of what is compressed
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if status < 200 { // not the answer yet
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.begun {
		return
	}
	w.status, w.begun = status, true
	if size, err := strconv.Atoi(w.Header().Get("Content-Length")); err == nil {
		w.sendHead(size)
	}
}

// sendHead decides how an answer goes out that has so many bytes, or begins
// with them.
func (w *response) sendHead(size int) {
	if !w.begun {
		w.status, w.begun = http.StatusOK, true
	}
	if w.sent {
		return
	}
	w.sent = true
	if w.last {
		w.Header().Set("Connection", "close")
	}
	if worthGzip(w.status, size, w.Header()) {
		addVary(w.Header(), "Accept-Encoding")
		if w.gzip {
			w.zip = newCompressor(pieces{w})
		}
		if w.zip != nil {
			w.rest, _ = strconv.Atoi(w.Header().Get("Content-Length"))
			gzipHead(w.Header())
		}
	}
	w.hurry() // nothing may follow
	w.ResponseWriter.WriteHeader(w.status)
}

// Write sends p. What is more than a piece is in memory for as long as the client
// takes for it, and counts for that client. If there is no room for it, it is not
// sent: the answer is a refusal, or ends if a part of it is on its way.
func (w *response) Write(p []byte) (n int, err error) {
	if more := len(p) - w.held; more > piece && w.keep != nil && !w.head {
		release, err := w.keep(more)
		if err != nil {
			w.refuse(err)
			return 0, err
		}
		defer release()
	}
	w.sendHead(len(p))
	switch {
	case w.zip != nil && w.head:
		return len(p), nil // net/http would take what it has of it for the length
	case w.zip != nil:
		w.rest -= len(p)
		return w.zip.Write(p)
	}
	return pieces{w}.Write(p)
}

// hold takes room for an answer of about so many bytes that is not encoded yet,
// until it is written: it would be encoded for nothing if there were none.
func (w *response) hold(n int) error {
	if n <= piece || w.keep == nil || w.head {
		return nil
	}
	release, err := w.keep(n)
	if err == nil {
		w.held += n
		w.whenWritten(release)
	}
	return err
}

// whenWritten has something given back when the answer has ended.
func (w *response) whenWritten(release func()) { w.after = append(w.after, release) }

func (w *response) giveBack() {
	for _, release := range w.after {
		release()
	}
}

// refuse answers with a problem in place of what was to be sent, if nothing of
// it was.
func (w *response) refuse(err error) {
	if w.sent {
		return
	}
	w.begun = false
	w.Header().Del("Content-Length")
	problem(err).write(w)
}

// end sends what is held back. An answer that is not whole is left as it is. One
// that is shorter than was announced is not whole: net/http sees that of what it
// sends as it is, and cannot of what is compressed.
func (w *response) end(whole bool) {
	if whole && w.begun {
		w.sendHead(0)
	}
	if w.zip != nil {
		short := whole && !w.head && w.rest > 0
		w.zip.end(whole && !w.head && !short)
		if w.zip = nil; short {
			panic(http.ErrAbortHandler)
		}
	}
	if whole && w.sent {
		w.hurry() // for the end of a stream that nothing was written to for long
	}
}

// hurry gives the client a new deadline.
func (w *response) hurry() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
}

// FlushError sends what was written. It is for http.ResponseController.
func (w *response) FlushError() error {
	w.sendHead(0)
	if w.zip != nil {
		if err := w.zip.flush(); err != nil {
			return err
		}
	}
	w.hurry()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// pieces writes to the client what it is sent, compressed or not, and gives each
// piece a deadline of its own.
type pieces struct{ *response }

func (w pieces) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+piece)]
		w.hurry()
		m, err := w.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}
