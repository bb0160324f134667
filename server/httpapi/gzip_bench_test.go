package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolhost/toolhost/server"
)

// BenchmarkAnswers compares answers as they are with compressed ones: what goes
// over the wire, and what that takes. It is why minGzip is what it is: below,
// what is saved is less than a packet.
func BenchmarkAnswers(b *testing.B) {
	var log strings.Builder
	for i := 0; log.Len() < 200<<10; i++ {
		fmt.Fprintf(&log, "%d primes below %d\n", i*7919, i*65537)
	}
	for _, c := range []struct {
		name, media string
		answer      any
	}{
		{"a problem", jsonMedia, refuse(CodeNotFound, "no such tool: %q", "ecko")},
		{"a run", jsonMedia, sampleRuns(1).Runs[0]},
		{"3 runs", jsonMedia, sampleRuns(3)},
		{"50 runs", jsonMedia, sampleRuns(50)},
		{"25 tools", jsonMedia, sampleTools(25)},
		{"the document", jsonMedia, document},
		{"200 KiB of output", plainText, []byte(log.String())},
	} {
		for _, gzip := range []bool{false, true} {
			name := map[bool]string{false: "plain", true: "gzip"}[gzip]
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				var sent counter
				for b.Loop() {
					sent = counter{header: http.Header{}}
					w := &response{ResponseWriter: &sent, gzip: gzip}
					w.Header().Set("Content-Type", c.media)
					if text, ok := c.answer.([]byte); ok {
						_, _ = w.Write(text)
					} else {
						_ = writeJSON(w, c.answer)
					}
					w.end(true)
				}
				b.ReportMetric(float64(sent.n), "wire-B")
			})
		}
	}
}

// counter is the other end of an answer.
type counter struct {
	header http.Header
	n      int
}

func (c *counter) Header() http.Header         { return c.header }
func (c *counter) WriteHeader(int)             {}
func (c *counter) Write(p []byte) (int, error) { c.n += len(p); return len(p), nil }

func sampleRuns(n int) (out Runs) {
	for i := range n {
		id := fmt.Sprintf("bg_%026x", i*0x9e3779b97f4a7c1)
		out.Runs = append(out.Runs, Run{
			TaskID: id, Session: "default", Tool: "primes", ToolVersion: strings.Repeat("9f86d081884c7d65", 4), Title: "Count primes",
			Origin: "spawned", By: "api", Status: "succeeded", Done: true, Attempt: 1, ElapsedSeconds: float64(i), DeadlineSeconds: 300,
			OutputBytes: int64(i * 1000), SignalOnCompletion: true, Notice: "pending", LogPath: "runs/" + id + "/output.log", ResultPath: "runs/" + id + "/result.json",
		})
	}
	return out
}

func sampleTools(n int) (out Tools) {
	for i := range n {
		out.Tools = append(out.Tools, server.Definition{
			Name: fmt.Sprintf("tool_%d", i), Title: "A tool", Description: "Counts the words, lines and characters of a text, as " + fmt.Sprint(i) + " does.",
			InputSchema: []byte(`{"type":"object","required":["text"],"properties":{"text":{"type":"string","description":"Text to count"},"limit":{"type":"integer","minimum":1}}}`),
			Plugin:      "wordcount", Approval: "auto", Deferrable: "automatic", SupportsBackground: true,
		})
	}
	return out
}
