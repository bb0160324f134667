package httpapi

import (
	"errors"
	"fmt"
	"io"
	"math"
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

// record returns the run a request names, without what it was given and has given.
func (a *API) record(r *request) (background.Run, error) {
	id, err := r.run()
	if err != nil {
		return background.Run{}, err
	}
	run, err := a.service.Runs().Get(r.Context(), r.session, id)
	run.Args, run.Result, run.Content = nil, nil, nil // they may be large, and the answer take long
	return run, err
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
	from, to, part, err := wantedRange(r.Request)
	switch {
	case err != nil:
		return err
	case part:
		return a.outputRange(r, run.ID, from, to)
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
func (a *API) outputRange(r *request, id string, from, to int64) error {
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

// wantedRange is the range of bytes a request asks for, as parseRange has it. All
// is sent to who asks for several ranges, or of another unit, or by another
// method than GET (RFC 9110, 14.2), or if nothing has changed (13.1.5): nothing
// here has a tag or a date to know that by.
func wantedRange(r *http.Request) (from, to int64, part bool, err error) {
	unit, spec, _ := strings.Cut(strings.Join(r.Header.Values("Range"), ","), "=")
	if !strings.EqualFold(unit, "bytes") || strings.Contains(spec, ",") || r.Method != http.MethodGet || r.Header.Get("If-Range") != "" {
		return 0, 0, false, nil
	}
	from, to, err = parseRange(strings.TrimSpace(spec))
	return from, to, true, err
}

// parseRange reads one range: its first byte, negative from the end, and its last
// one, -1 for the end. However large a number is, it is one: of what there is not.
func parseRange(spec string) (from, to int64, err error) {
	if !rangeForm.MatchString("bytes=" + spec) {
		return 0, 0, invalid("Range", "expected bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT")
	}
	number := func(digits string) int64 {
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return math.MaxInt64
		}
		return int64(n)
	}
	first, last, _ := strings.Cut(spec, "-")
	switch {
	case first == "" && number(last) == 0:
		return math.MaxInt64, -1, nil // the last none are beyond the end
	case first == "":
		return -number(last), -1, nil
	case last == "":
		return number(first), -1, nil
	}
	if from, to = number(first), number(last); to < from {
		return 0, 0, invalid("Range", "the last byte comes before the first")
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
	h.Set("Accept-Ranges", "bytes")
	return sendFile(r, file)
}

// sendFile sends a file that does not change, or the range of it that is asked
// for.
func sendFile(r *request, file io.ReadSeeker) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	from, to, part, err := wantedRange(r.Request)
	if err != nil {
		return err
	}
	if from < 0 {
		from = max(0, size+from)
	}
	if !part || to < 0 {
		to = math.MaxInt64
	}
	to = min(to, size-1)
	h, status := r.w.Header(), http.StatusOK
	switch {
	case part && from >= size:
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return refuse(CodeRange, "the file has %d bytes", size)
	case part:
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
		status = http.StatusPartialContent
	}
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return err
	}
	h.Set("Content-Length", strconv.FormatInt(to-from+1, 10))
	r.w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.CopyN(r.w, file, to-from+1); err != nil {
		panic(http.ErrAbortHandler) // the client is to see that it is not whole, or is gone
	}
	return nil
}
