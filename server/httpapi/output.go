package httpapi

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

const (
	plainText = "text/plain; charset=utf-8" // browsers do not guess another type, see newResponse
	maxRead   = 256 << 10                   // bytes of a log per read
)

// record returns the requested run, without its large parts.
func (r *request) record() (wire.Run, error) {
	return r.session.Run(r.Context(), r.PathValue("run"))
}

// readOutput responds with the log of a run: all of it, a range of bytes, or a stream of
// events.
func readOutput(r *request) error {
	run, err := r.record()
	if err != nil {
		return err
	}
	if wantsEvents(r.Request) {
		return followOutput(r, run)
	}

	h := r.w.Header()
	h.Set("Content-Type", plainText)
	h.Set("Accept-Ranges", "bytes")
	wanted, err := rangeOf(r.Request)
	switch {
	case err != nil:
		return err
	case wanted != nil:
		return r.outputRange(run.TaskID, *wanted)
	}

	log, err := r.session.Log(r.Context(), run.TaskID)
	if err != nil {
		return err
	}
	h.Set(wire.AttemptHeader, strconv.Itoa(log.Attempt))
	if _, err := log.WriteTo(r.w); err != nil {
		panic(http.ErrAbortHandler) // the client must notice that the end is missing
	}
	return nil
}

// outputRange sends one range of the log. Offsets refer to the complete log as it was
// written. Dropped bytes cannot be sent: the response begins after the gap or ends
// before it, as Content-Range says.
func (r *request) outputRange(id string, wanted byteRange) error {
	c, err := r.session.Tail(r.Context(), id, wanted.first, maxRead)
	if err != nil {
		return err
	}
	if wanted.last < c.Offset+int64(len(c.Data)) {
		c.Data = c.Data[:max(0, wanted.last+1-c.Offset)]
	}

	h := r.w.Header()
	h.Set(wire.AttemptHeader, strconv.Itoa(c.Attempt))
	if len(c.Data) == 0 {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", c.End))
		return refuse(wire.CodeRange, "the output has %d bytes so far", c.End)
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", c.Offset, c.Offset+int64(len(c.Data))-1, c.End))
	r.w.send(http.StatusPartialContent, plainText, c.Data)
	return nil
}

// byteRange is an inclusive range of bytes. A negative first counts from the end.
type byteRange struct{ first, last int64 }

// rangeOf returns the requested range, or nil for the complete content. It ignores
// several ranges, other units, methods other than GET (RFC 9110, 14.2), and requests with
// If-Range (13.1.5), because nothing here has an ETag or a date.
func rangeOf(r *http.Request) (*byteRange, error) {
	unit, spec, _ := strings.Cut(strings.Join(r.Header.Values("Range"), ","), "=")
	if !strings.EqualFold(unit, "bytes") || strings.Contains(spec, ",") || r.Method != http.MethodGet || r.Header.Get("If-Range") != "" {
		return nil, nil
	}

	wanted, err := parseRange(strings.TrimSpace(spec))
	return &wanted, err
}

// parseRange parses one range. Numbers that do not fit in an int64 are capped.
func parseRange(spec string) (byteRange, error) {
	if !rangeForm.MatchString(spec) {
		return byteRange{}, invalid("Range", "expected bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT")
	}
	number := func(digits string) int64 {
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return math.MaxInt64
		}
		return int64(n)
	}

	first, last, _ := strings.Cut(spec, "-")
	out := byteRange{number(first), math.MaxInt64}
	switch {
	case first == "" && number(last) > 0: // the last bytes; the last 0 bytes are beyond the end
		out.first = -number(last)
	case first != "" && last != "":
		out.last = number(last)
	}
	if out.last < out.first {
		return byteRange{}, invalid("Range", "the last byte comes before the first")
	}
	return out, nil
}

// readArtifact sends a file of a run that has ended, or a range of it.
func readArtifact(r *request) error {
	run, err := r.record()
	if err != nil {
		return err
	}

	name := r.PathValue("name")
	file, err := r.session.Open(r.Context(), run.TaskID, name)
	if err != nil && server.ReasonOf(err).Code == wire.CodeNotFound {
		return refuse(wire.CodeNotFound, "run %s has no file %s: a finished run has %s and %s", run.TaskID, shorten(name), wire.OutputLog, wire.ResultJSON)
	}
	if err != nil {
		return err
	}
	defer file.Close()

	h := r.w.Header()
	h.Set("Content-Type", plainText)
	if name == wire.ResultJSON {
		h.Set("Content-Type", jsonMedia)
	}
	h.Set(wire.AttemptHeader, strconv.Itoa(run.Attempt))
	h.Set("Accept-Ranges", "bytes")
	return r.sendFile(file)
}

// sendFile sends a file that does not change, or a range of it.
func (r *request) sendFile(file io.ReadSeeker) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	wanted, err := rangeOf(r.Request)
	if err != nil {
		return err
	}

	r.Header = http.Header{} // conditions need an ETag or a date, and the file has neither
	if wanted != nil {
		first := wanted.first
		if first < 0 {
			first = max(0, size+first)
		}
		if first >= size {
			r.w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
			return refuse(wire.CodeRange, "the file has %d bytes", size)
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, wanted.last))
	}
	http.ServeContent(r.w, r.Request, "", time.Time{}, file)
	return nil
}
