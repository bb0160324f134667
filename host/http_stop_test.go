package host_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// nameServer answers every question about an address over UDP with 127.0.0.1, or with
// nothing at all for the name silent.example.com. Each question is sent to asked.
func nameServer(t testing.TB, asked chan<- string) *net.Resolver {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })

	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			select {
			case asked <- q.Name.String():
			default:
			}
			if q.Name.String() == "silent.example.com." {
				continue
			}

			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()

	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// slowServer is a real HTTPS server whose replies take minutes. It says when a request
// has arrived, and how the request ended.
type slowServer struct {
	*httptest.Server
	host           *host.Host
	asked          chan string // names that were looked up
	arrived, ended chan string
}

// replyTime is how long a reply takes. A test that waits for it has failed.
const replyTime = 10 * time.Minute

func newSlowServer(t testing.TB, http2 bool) *slowServer {
	s := &slowServer{asked: make(chan string, 100), arrived: make(chan string, 1), ended: make(chan string, 1)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = w.Write([]byte("the beginning"))
			w.(http.Flusher).Flush()
		}
		s.arrived <- r.Proto
		reply := time.NewTimer(replyTime)
		defer reply.Stop()
		select {
		case <-r.Context().Done():
			s.ended <- "gone"
		case <-reply.C:
			s.ended <- "replied"
		}
	}))
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)

	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.host = hostWith(t, host.Config{CacheDir: plugintest.CacheDir(), Egress: host.Egress{CA: ca, Resolver: nameServer(t, s.asked)}})
	return s
}

// url is an address of the server by a name that the name server knows.
func (s *slowServer) url(name, path string) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return fmt.Sprintf("https://%s:%s%s", name, port, path)
}

func (s *slowServer) policy() host.Policy {
	return host.Policy{Grant: host.Grant{HTTP: []host.HTTPRule{
		{URL: s.url("example.com", "/*"), Private: true}, {URL: s.url("silent.example.com", "/*"), Private: true},
	}}}
}

// TestHTTPStop: whatever ends a call, and however far its request is, the server sees the
// end of the request long before it would have replied. The names are looked up at a
// real name server.
func TestHTTPStop(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := newSlowServer(t, http2)
		for _, path := range []string{"/header", "/body"} {
			m := compile(t, s.host, hostOps("http", `{"url":"`+s.url("example.com", path)+`","timeout_ms":3600000}`).wasm())
			for name, end := range map[string]func(cancel, stop func()){
				"stop":   func(_, stop func()) { stop() },
				"cancel": func(cancel, _ func()) { cancel() },
			} {
				t.Run(fmt.Sprintf("HTTP/2 %v, %s, %s", http2, path, name), func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					stopping := make(chan struct{})
					ended := make(chan outcome, 1)
					go func() { ended <- do(ctx, s.host, m, host.Call{Policy: s.policy(), Stopping: stopping}) }()

					proto := <-s.arrived
					require.Equal(t, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2], proto)
					began := time.Now()
					end(cancel, func() { close(stopping) })
					require.Equal(t, "gone", <-s.ended, "the server replied first")
					t.Logf("the server saw it after %v", time.Since(began))

					o := <-ended
					if name == "cancel" {
						require.ErrorIs(t, o.err, context.Canceled)
						return
					}
					require.NoError(t, o.err)
					require.JSONEq(t, `{"code":"canceled","message":"the call is being stopped"}`, string(o.Value))
				})
			}
		}
		require.Contains(t, asked(s.asked), "example.com.")
	}
}

func asked(names <-chan string) (all []string) {
	for len(names) > 0 {
		all = append(all, <-names)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestHTTPStopInner: a stop reaches the request of a tool that the tool has called.
func TestHTTPStopInner(t *testing.T) {
	s := newSlowServer(t, true)
	inner := compile(t, s.host, hostOps("http", `{"url":"`+s.url("example.com", "/header")+`"}`).wasm())
	outer := compile(t, s.host, hostOps("tool.call", `{"tool":"inner"}`).wasm())
	stopping := make(chan struct{})
	req := host.Call{Policy: s.policy(), Stopping: stopping}
	req.Policy.Tools = []string{"inner"}
	req.CallTool = func(ctx context.Context, c host.ToolCall) (abi.Result, error) {
		return s.host.Call(ctx, inner, host.Call{Tool: "inner", Caller: c.Caller, Stopping: stopping, Policy: s.policy()})
	}
	ended := make(chan outcome, 1)
	go func() { ended <- do(t.Context(), s.host, outer, req) }()

	<-s.arrived
	close(stopping)
	require.Equal(t, "gone", <-s.ended)
	require.NoError(t, (<-ended).err)
}

// TestHTTPStopLookup: a call that is stopped while its name server is silent does not
// wait for it.
func TestHTTPStopLookup(t *testing.T) {
	s := newSlowServer(t, false)
	m := compile(t, s.host, hostOps("http", `{"url":"`+s.url("silent.example.com", "/")+`"}`).wasm())
	stopping := make(chan struct{})
	ended := make(chan outcome, 1)
	go func() { ended <- do(t.Context(), s.host, m, host.Call{Policy: s.policy(), Stopping: stopping}) }()

	require.Equal(t, "silent.example.com.", <-s.asked)
	close(stopping)
	o := <-ended
	require.NoError(t, o.err)
	require.JSONEq(t, `{"code":"canceled","message":"the call is being stopped"}`, string(o.Value))
	require.Empty(t, s.arrived)
}

// TestHTTPWaits: a call says what its request waited for until its time was up.
func TestHTTPWaits(t *testing.T) {
	s := newSlowServer(t, true)
	m := compile(t, s.host, hostOps("http", `{"url":"`+s.url("example.com", "/header")+`","timeout_ms":1}`).wasm())
	slow := compile(t, s.host, hostOps("http", `{"url":"`+s.url("example.com", "/header")+`","timeout_ms":3600000}`).wasm())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const permits = 16
	ended := make(chan outcome, permits)
	for range permits {
		go func() { ended <- do(ctx, s.host, slow, host.Call{Policy: s.policy()}) }()
		<-s.arrived
	}

	policy := s.policy()
	policy.Timeout = 50 * time.Millisecond
	o := do(t.Context(), s.host, m, host.Call{Policy: policy})
	require.EqualError(t, o.err, "guest_tool: time limit of 50ms reached while the call waited: at most 16 http requests of one plugin are in flight at a time: retry when others have ended")
	require.ErrorIs(t, o.err, context.DeadlineExceeded)

	cancel()
	for range permits {
		require.Equal(t, "gone", <-s.ended)
		<-ended
	}
	require.Empty(t, s.arrived)
}

// BenchmarkHTTPStop is the time from a stop to the end of the request as the server sees
// it. The target is 100 ms at most.
func BenchmarkHTTPStop(b *testing.B) {
	for _, http2 := range []bool{false, true} {
		b.Run(fmt.Sprintf("HTTP/2=%v", http2), func(b *testing.B) {
			s := newSlowServer(b, http2)
			m := compile(b, s.host, hostOps("http", `{"url":"`+s.url("example.com", "/header")+`"}`).wasm())
			var took []time.Duration
			for b.Loop() {
				stopping := make(chan struct{})
				ended := make(chan outcome, 1)
				go func() { ended <- do(b.Context(), s.host, m, host.Call{Policy: s.policy(), Stopping: stopping}) }()
				<-s.arrived
				began := time.Now()
				close(stopping)
				require.Equal(b, "gone", <-s.ended)
				took = append(took, time.Since(began))
				<-ended
			}

			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms/stop")
			b.ReportMetric(took[len(took)-1].Seconds()*1e3, "ms/slowest")
		})
	}
}
