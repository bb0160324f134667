package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolhost/toolhost/pkg/background"
)

// plainText is what output is sent as. A browser takes it for nothing else, see
// secureHeaders.
const plainText = "text/plain; charset=utf-8"

// attemptHeader names the attempt of a run that an output is of: another
// attempt has a log of its own.
const attemptHeader = "Toolhost-Attempt"

// maxRead is how much of a log is read at once, in bytes.
const maxRead = 256 << 10

// record returns the run a request names.
func (a *API) record(r *request) (background.Run, error) {
	id, err := r.run()
	if err != nil {
		return background.Run{}, err
	}
	return a.service.Runs().Get(r.Context(), r.session, id)
}

// output answers with a run's log: all of it, a range of bytes, or events that
// follow it.
func (a *API) output(r *request) error {
	run, err := a.record(r)
	if err != nil {
		return err
	}
	if wantsEvents(r.Request) {
		return a.follow(r, run)
	}
	h := r.w.Header()
	h.Set("Content-Type", plainText)
	h.Set("Accept-Ranges", "bytes")
	if spec, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok && !strings.Contains(spec, ",") {
		return a.outputRange(r, run.ID, strings.TrimSpace(spec))
	}
	return a.wholeOutput(r, run.ID)
}

// wholeOutput sends what is kept of the log by now, with a line for what was
// dropped in its middle, as the file has it.
func (a *API) wholeOutput(r *request, id string) error {
	log, err := a.service.Runs().Log(r.Context(), r.session, id)
	if err != nil {
		return err
	}
	r.w.Header().Set(attemptHeader, strconv.Itoa(log.Attempt))
	if _, err := log.WriteTo(r.w); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that it is not whole, or is gone
	}
	return nil
}

// outputRange sends one piece of the log. Offsets are those of the whole log
// as it was written. Of what was dropped nothing is sent: the piece begins
// after the gap, or ends before it, and Content-Range tells.
func (a *API) outputRange(r *request, id, spec string) error {
	from, to, err := parseRange(spec)
	if err != nil {
		return err
	}
	c, err := a.service.Runs().Tail(r.Context(), r.session, id, from, maxRead)
	if err != nil {
		return err
	}
	if to >= 0 && to < c.Offset+int64(len(c.Data)) {
		c.Data = c.Data[:max(0, to+1-c.Offset)]
	}
	h := r.w.Header()
	h.Set(attemptHeader, strconv.Itoa(c.Attempt))
	if len(c.Data) == 0 {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", c.End))
		return refuse(CodeRange, "the output has %d bytes so far", c.End)
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", c.Offset, c.Offset+int64(len(c.Data))-1, c.End))
	h.Set("Content-Length", strconv.Itoa(len(c.Data)))
	r.w.WriteHeader(http.StatusPartialContent)
	_, _ = r.w.Write(c.Data) // what goes wrong here is a client that is gone
	return nil
}

// parseRange reads the one range of a header: its first byte, negative from
// the end, and its last one, -1 for the end.
func parseRange(spec string) (from, to int64, err error) {
	bad := invalid("Range", "expected bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT")
	first, last, ok := strings.Cut(spec, "-")
	if !ok || first == "" && last == "" {
		return 0, 0, bad
	}
	number := func(s string) int64 {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			ok = false
		}
		return int64(n)
	}
	switch {
	case first == "":
		from, to = -number(last), -1
	case last == "":
		from, to = number(first), -1
	default:
		from, to = number(first), number(last)
	}
	if !ok || to >= 0 && to < from || first == "" && from == 0 {
		return 0, 0, bad
	}
	return from, to, nil
}

// artifact sends a file of an ended run.
func (a *API) artifact(r *request) error {
	run, err := a.record(r)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	file, err := a.service.Runs().Open(r.Context(), r.session, run.ID, name)
	if errors.Is(err, background.ErrNotFound) {
		return refuse(CodeNotFound, "run %s has no %s: an ended run has %s and %s", run.ID, shorten(name), background.OutputLog, background.ResultJSON)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	h := r.w.Header()
	h.Set("Content-Type", plainText)
	if name == background.ResultJSON {
		h.Set("Content-Type", jsonMedia)
	}
	h.Set(attemptHeader, strconv.Itoa(run.Attempt))
	w := &fileAnswer{ResponseWriter: r.w}
	http.ServeContent(w, r.Request, "", run.FinishedAt, file)
	if w.beyond {
		h.Del("Content-Length")
		return refuse(CodeRange, "the file does not reach as far: Content-Range says how far it does")
	}
	return nil
}

// fileAnswer keeps back what net/http says of a range that is beyond the end,
// for it is to be a problem.
type fileAnswer struct {
	http.ResponseWriter
	beyond bool
}

func (w *fileAnswer) WriteHeader(status int) {
	if w.beyond = status == http.StatusRequestedRangeNotSatisfiable; !w.beyond {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *fileAnswer) Write(p []byte) (int, error) {
	if w.beyond {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
