package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkDo compares a request of 1 KiB with one of Go's plain client to the same
// server, in turn, over connections that are kept. ratio is egress to plain.
func BenchmarkDo(b *testing.B) {
	for _, c := range []struct {
		name   string
		http2  bool
		secret string
	}{{"http1", false, ""}, {"http1-secret", false, "key"}, {"http2", true, ""}, {"http2-secret", true, "key"}} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b)
			body := bytes.Repeat([]byte("0123456789abcde\n"), 64)
			s := newServer(b, w.ca, serverOptions{http2: c.http2}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(body) }))
			s.quiet = true
			w.names["key"] = Secret{Value: plainSecret, Hosts: []string{"api.example.test"}, Place: bearer}
			client, plain := w.client(b), plainClient(b, w)
			p := policy(b, Rule{URL: "https://*/*"}, Rule{URL: s.url + "/v1/*", Secret: c.secret})

			egress := func() {
				resp, err := client.Call(CallConfig{Plugin: "p", Policy: p, Secrets: w}).Do(context.Background(), &Request{URL: s.url + "/v1/x"})
				require.NoError(b, err)
				require.Len(b, resp.Body, len(body))
			}
			direct := func() {
				req, err := http.NewRequest("GET", s.url+"/v1/x", nil)
				require.NoError(b, err)
				resp, err := plain.Do(req)
				require.NoError(b, err)
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				require.NoError(b, err)
				require.Len(b, got, len(body))
			}

			egress()
			direct()
			var with, without time.Duration
			for b.Loop() {
				start := time.Now()
				direct()
				mid := time.Now()
				egress()
				without, with = without+mid.Sub(start), with+time.Since(mid)
			}
			n := float64(b.N)
			b.ReportMetric(float64(without.Nanoseconds())/n/1e3, "plain-µs")
			b.ReportMetric(float64(with.Nanoseconds())/n/1e3, "egress-µs")
			b.ReportMetric(float64(with)/float64(without), "ratio")
		})
	}
}

func plainClient(b *testing.B, w *world) *http.Client {
	roots := x509.NewCertPool()
	require.True(b, roots.AppendCertsFromPEM(w.cfg.CA))
	d := net.Dialer{Resolver: w.cfg.Resolver}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
}

// BenchmarkStop measures the time from the stop of a call until the server notices.
func BenchmarkStop(b *testing.B) {
	for _, http2 := range []bool{false, true} {
		b.Run(fmt.Sprintf("http2=%t", http2), func(b *testing.B) {
			w := newWorld(b)
			arrived, ended := make(chan struct{}), make(chan time.Time)
			s := newServer(b, w.ca, serverOptions{http2: http2}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived <- struct{}{}
				<-r.Context().Done()
				ended <- time.Now()
			}))
			s.quiet = true
			client := w.client(b)
			p := policy(b, Rule{URL: s.url + "/*"})

			var total, worst time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(context.Background())
				result := make(chan error)
				go func() {
					_, err := client.Call(CallConfig{Policy: p}).Do(ctx, &Request{URL: s.url + "/"})
					result <- err
				}()
				<-arrived
				start := time.Now()
				cancel()
				took := (<-ended).Sub(start)
				require.ErrorIs(b, <-result, context.Canceled)
				total, worst = total+took, max(worst, took)
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/seen")
			b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
		})
	}
}
