package httpapi

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// minGzip is the smallest answer that is compressed, in bytes. What is
	// smaller fits into a packet either way. See BenchmarkAnswers.
	minGzip = 1400
	// maxGzip is how many answers are compressed at once, for each takes some
	// 1.2 MB, and a client may be slow to take it. Others go out as they are.
	maxGzip = 64
	// gzipBuffer holds what the compressor gives out in pieces of some 200 bytes.
	gzipBuffer = 16 << 10
)

// compressor makes gzip of an answer.
type compressor struct {
	zip *gzip.Writer
	out *bufio.Writer
}

// compressors are used again, which is cheaper than to make one. The level is
// the fastest: the next ones take half as long again for a tenth less, and what
// this saves is mostly saved by any.
var compressors = sync.Pool{New: func() any {
	out := bufio.NewWriterSize(nil, gzipBuffer)
	zip, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // it knows the level
	return &compressor{zip, out}
}}

// compressing counts the compressors in use.
var compressing atomic.Int32

// newCompressor returns a compressor that writes to w, nil if there are too many
// at work. It has to be ended.
func newCompressor(w io.Writer) *compressor {
	if compressing.Add(1) > maxGzip {
		compressing.Add(-1)
		return nil
	}
	c := compressors.Get().(*compressor)
	c.out.Reset(w)
	c.zip.Reset(c.out)
	return c
}

func (c *compressor) Write(p []byte) (int, error) { return c.zip.Write(p) }

// flush writes all that can be read by now.
func (c *compressor) flush() error {
	if err := c.zip.Flush(); err != nil {
		return err
	}
	return c.out.Flush()
}

// end writes the rest, if the answer is whole. Of one that is not, nothing more
// is written: it must not look as if it had ended.
func (c *compressor) end(whole bool) {
	if whole && c.zip.Close() == nil {
		_ = c.out.Flush() // what goes wrong here is a client that is gone
	}
	c.out.Reset(nil)
	compressors.Put(c)
	compressing.Add(-1)
}

// worthGzip reports whether an answer, with this head and so many bytes to
// begin with, is one to compress: text that is not small, sent whole. Ranges are
// of the bytes as they are, and events are small and are to arrive at once.
//
// That what is compressed shows by its length what is in it (BREACH) needs a
// secret in an answer, and somebody who may add guesses to that answer again and
// again and sees its length. No answer has the token, what has the name of a
// secret is left out of arguments, and pages of other origins, whose requests a
// browser would make on behalf of its user, are refused before anything is
// answered.
func worthGzip(status, size int, h http.Header) bool {
	switch {
	case size < minGzip, status < 200, status == http.StatusNoContent, status == http.StatusPartialContent, status == http.StatusNotModified:
		return false
	case h.Get("Content-Encoding") != "", h.Get("Content-Range") != "":
		return false
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	return media != eventStream && (media == jsonMedia || strings.HasSuffix(media, "+json") || strings.HasPrefix(media, "text/"))
}

// gzipHead makes the head of an answer that of a compressed one. The tag of the
// bytes as they are is none of the compressed ones, but for weak comparison.
func gzipHead(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Del("Content-Length")
	h.Del("Accept-Ranges")
	if tag := h.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		h.Set("ETag", "W/"+tag)
	}
}

// addVary says that an answer depends on a header of the request.
func addVary(h http.Header, name string) {
	for part := range strings.SplitSeq(strings.Join(h.Values("Vary"), ","), ",") {
		if part = strings.TrimSpace(part); part == "*" || strings.EqualFold(part, name) {
			return
		}
	}
	h.Add("Vary", name)
}

// takesGzip reports whether a client takes gzip, as RFC 9110 has it: by name, or
// by "*" if it is not named. Whatever else there may be in the header is no
// reason to refuse a request.
func takesGzip(headers []string) bool {
	var named, star bool
	var weight, starWeight float64
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		coding, params, _ := strings.Cut(part, ";")
		switch coding = strings.TrimSpace(coding); {
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "x-gzip"):
			named, weight = true, max(weight, quality(params))
		case coding == "*":
			star, starWeight = true, max(starWeight, quality(params))
		}
	}
	return named && weight > 0 || !named && star && starWeight > 0
}

// quality is the weight of a coding, 1 if none is given. What is no weight is 0:
// who is not understood gets what needs no understanding.
func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return q
	}
	return 1
}

// plainBody refuses bodies that are compressed: nothing here decompresses them,
// so that what is bounded is what was sent.
func plainBody(w http.ResponseWriter, r *http.Request) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			w.Header().Set("Accept-Encoding", "identity") // as RFC 9110 has it: this is why
			return refuse(CodeMediaType, "send the body as it is: Content-Encoding %s is not taken", shorten(coding))
		}
	}
	return nil
}
