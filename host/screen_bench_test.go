package host_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
)

// BenchmarkScreen is a call that writes 1,000 times 1 KiB of live output, and a result of
// 1 KiB: one whose plugin has no secret, one that could use one and does not, and one
// that has used one.
func BenchmarkScreen(b *testing.B) {
	s := newWebServer(b, false, func(http.ResponseWriter, *http.Request) {})
	rule := s.rule("/*")
	rule.Secret = "example"
	secrets := vault{"example": {Value: "correct-horse-battery", Hosts: []string{"127.0.0.1"}, Place: host.Place{Bearer: true}}}
	line := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 23)[:1023] + "\n"
	request := fmt.Sprintf(`{"url":"%s/"}`, s.URL)

	at := dataAt + int64(len("http"+request))
	output := seq(times(1000, drop(write(abi.StreamOutput, at, 1024))), drop(write(abi.StreamResult, at+1024, 1024)), i32(0))
	g := guest{data: "http" + request + line + `"` + line[:1022] + `"`, invoke: output, silent: true}
	without := compile(b, s.host, g.wasm())
	g.invoke = seq(drop(capability(dataAt, 4, dataAt+4, int64(len(request)))), output)
	with := compile(b, s.host, g.wasm())

	for _, c := range []struct {
		name   string
		m      *host.Module
		policy host.Policy
	}{{"none", without, host.Policy{}}, {"unused", without, granting(rule)}, {"used", with, granting(rule)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				o := do(b.Context(), s.host, c.m, host.Call{Policy: c.policy, Services: host.Services{Secrets: secrets}})
				require.NoError(b, o.err)
			}
		})
	}
}
