// Package fleet runs several hosts on this machine behind a load balancer. The hosts share a
// database. The balancer has no sticky sessions: each request goes to the next host. The
// package is used by the demo of several hosts and by tests with clients.
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// A Config configures a fleet. All fields except Env and Log are required.
type Config struct {
	Program string    // path of the toolhost command
	Args    []string  // arguments for serve, besides --data and --listen
	Engine  string    // URL of the database
	Env     []string  // environment variables, besides those of this process
	Folder  string    // folder for the hosts' data folders
	Hosts   int       // number of hosts
	Log     io.Writer // where the hosts' output goes; nil discards it
}

// A Fleet is a set of running hosts. It is safe for concurrent use.
type Fleet struct {
	URL string // URL of the balancer

	balancer *http.Server
	served   sync.WaitGroup
	mu       sync.Mutex
	hosts    []*host
	next     int
}

type host struct {
	cmd   *exec.Cmd
	url   *url.URL
	ended chan struct{} // closed when the process has ended
	gone  bool          // whether it was killed
}

// Start starts the hosts and the balancer, and returns when all of them are ready. Close
// the fleet when done.
func Start(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{}
	for n := range cfg.Hosts {
		h, err := start(ctx, cfg, filepath.Join(cfg.Folder, fmt.Sprintf("host-%d", n+1)))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("host %d of %d: %w", n+1, cfg.Hosts, err)
		}
		f.hosts = append(f.hosts, h)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Close()
		return nil, err
	}
	f.URL = "http://" + listener.Addr().String()
	f.balancer = &http.Server{Handler: f.proxy(), ReadHeaderTimeout: time.Minute}
	f.served.Go(func() { _ = f.balancer.Serve(listener) })
	return f, nil
}

var listening = regexp.MustCompile(`listening on (http://\S+)`)

// start starts a host, and waits until it is ready.
func start(ctx context.Context, cfg Config, data string) (*host, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	said := &log{to: cfg.Log, ready: make(chan struct{})}
	h := &host{ended: make(chan struct{}), cmd: exec.Command(cfg.Program, append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0"}, cfg.Args...)...)}
	h.cmd.Env = append(append(os.Environ(), cfg.Env...), "TOOLHOST_ENGINE="+cfg.Engine)
	h.cmd.Stderr = said
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = h.cmd.Wait()
		close(h.ended)
	}()

	var err error
	select {
	case <-said.ready:
	case <-h.ended:
		return nil, fmt.Errorf("it does not start: %s", said.text())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if found := listening.FindStringSubmatch(said.text()); err == nil && found != nil {
		h.url, err = url.Parse(found[1])
	}
	if err == nil && h.url == nil {
		err = errors.New("it does not say where it listens")
	}
	if err != nil {
		_ = h.cmd.Process.Kill()
		<-h.ended
		return nil, err
	}
	return h, nil
}

// log keeps the output of a host until the host is ready.
type log struct {
	to    io.Writer
	ready chan struct{} // closed when the host is ready

	mu   sync.Mutex
	said bytes.Buffer
	done bool
}

// maxStart limits how much output is kept of a host that is starting, in bytes.
const maxStart = 64 << 10

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done && l.said.Len() < maxStart {
		l.said.Write(p)
		if l.done = bytes.Contains(l.said.Bytes(), []byte("ready:")); l.done {
			close(l.ready)
		}
	}
	if l.to != nil {
		return l.to.Write(p)
	}
	return len(p), nil
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}

// maxRequest is the longest request body, in bytes: longer than a host accepts.
const maxRequest = 64 << 20

// proxy sends each request to the next host.
func (f *Fleet) proxy() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(f.turn())
			r.Out.Host = r.In.Host
		},
		FlushInterval: -1, // streams go on at once
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the host did not answer: "+err.Error(), http.StatusBadGateway)
		},
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server closes the body of a request when the answer begins. A host may answer
		// before the proxy has found the end of that body, and the proxy would then cut the
		// answer off (https://go.dev/issue/40747). So it gets the request whole, as with most
		// balancers.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, "the request cannot be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		proxy.ServeHTTP(w, r)
	})
}

// turn returns the address of the host whose turn it is.
func (f *Fleet) turn() *url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.hosts {
		h := f.hosts[f.next%len(f.hosts)]
		f.next++
		if !h.gone {
			return h.url
		}
	}
	return &url.URL{Scheme: "http", Host: "127.0.0.1:0"} // nobody is there
}

// URLs returns the addresses of the hosts, in the order in which they were started.
func (f *Fleet) URLs() (all []string) {
	for _, h := range f.hosts {
		all = append(all, h.url.String())
	}
	return all
}

// Kill kills host n without shutting it down. The balancer no longer sends it requests.
func (f *Fleet) Kill(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[n].gone = true
	return f.hosts[n].cmd.Process.Kill()
}

// closeWithin is how long hosts have to shut down.
const closeWithin = 20 * time.Second

// Close shuts down the hosts and the balancer.
func (f *Fleet) Close() {
	if f.balancer != nil {
		_ = f.balancer.Close()
		f.served.Wait()
	}
	for _, h := range f.hosts {
		_ = h.cmd.Process.Signal(os.Interrupt)
	}
	kill := time.AfterFunc(closeWithin, func() {
		for _, h := range f.hosts {
			_ = h.cmd.Process.Kill()
		}
	})
	defer kill.Stop()
	for _, h := range f.hosts {
		<-h.ended
	}
}
