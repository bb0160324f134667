package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/plugintest"
)

const stretchFile = "TOOLHOST_STRETCH" // set: this process does one stretch of a call

// TestMain does one stretch of a call if the test has started this program for that.
func TestMain(m *testing.M) {
	file := os.Getenv(stretchFile)
	if file == "" {
		os.Exit(m.Run())
	}
	var s stretch
	err := s.read(file)
	if err == nil {
		s, err = s.walk(context.Background(), true)
	}
	if err == nil {
		err = s.write(file)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A stretch is what one process does of a call: from a wait to the next.
type stretch struct {
	Wasm   string // file
	URL    string // of the shop
	State  []byte // of the wait
	Until  time.Time
	Result json.RawMessage
	Output string
}

func (s *stretch) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, s)
}

func (s stretch) write(file string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

const items = 8

// walk continues a call to its next wait, or to its end.
func (s stretch) walk(ctx context.Context, once bool) (stretch, error) {
	wasm, err := os.ReadFile(s.Wasm)
	if err != nil {
		return s, err
	}
	h, err := host.New(ctx, host.Config{CacheDir: plugintest.CacheDir()})
	if err != nil {
		return s, err
	}
	defer h.Close(ctx)
	m, err := h.Compile(ctx, wasm)
	if err != nil {
		return s, err
	}

	var output bytes.Buffer
	call := host.Call{
		ID: "call_1", Tool: "order", Args: fmt.Appendf(nil, `{"url":%q,"items":%d}`, s.URL, items), Continue: s.State,
		Traits: host.Traits{Plugin: "clients"},
		Policy: host.Policy{
			Memory: 256 << 20, Fuel: 1 << 40, Timeout: 10 * time.Minute,
			Grant: host.Grant{Clock: true, HTTP: []host.HTTPRule{{URL: s.URL + "/*", Methods: []string{"*"}, Private: true}}},
		},
	}
	call.Stdout = &output
	s.State = nil
	if once {
		call.Suspend = &suspension{stretch: &s}
	}
	r, err := h.Call(ctx, m, call)
	s.Result, s.Output = r.Value, s.Output+output.String()
	switch {
	case errors.Is(err, host.ErrSuspended):
		return s, nil
	case err == nil && r.Error != "":
		err = errors.New(r.Error)
	}
	return s, err
}

// A suspension keeps the states of a stretch. An order must not be made twice.
type suspension struct {
	host.Suspension // panics where the plugin has no use for it
	*stretch
}

func (s *suspension) Terms() host.SuspensionTerms   { return host.SuspensionTerms{} }
func (s *suspension) Status() host.SuspensionStatus { return host.SuspensionStatus{Live: true} }
func (s *suspension) Drop() error                   { return nil }

func (s *suspension) Keep(k host.SavedState) error {
	if !k.Hold {
		s.State, s.Until = k.State, k.Until
	}
	return nil
}

// A flaky shop answers each request only when it is made for the sixth time.
type flaky struct {
	mu       sync.Mutex
	requests map[string]int
}

const failures = 5 // of each request

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests[r.Method+" "+r.URL.Path+" "+string(body)]++
	failed := f.requests[r.Method+" "+r.URL.Path+" "+string(body)] <= failures
	f.mu.Unlock()

	if failed {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	_, name, _ := strings.Cut(r.URL.Path[1:], "/")
	if r.Method == "POST" {
		fmt.Fprintf(w, `{"order":"order-%s"}`, name)
		return
	}
	fmt.Fprintf(w, `{"price":1%s}`, name)
}

// TestRetries: a program of several goroutines with a client library has the same result,
// output and effects when it continues in another process at each wait.
func TestRetries(t *testing.T) {
	wasm := filepath.Join(t.TempDir(), "clients.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", wasm, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	shop, want := order(t, wasm, false)
	again, got := order(t, wasm, true)
	if !bytes.Equal(got.Result, want.Result) || got.Output != want.Output {
		t.Errorf("result %s, output %q; expected %s, %q", got.Result, got.Output, want.Result, want.Output)
	}
	if !maps.Equal(again.requests, shop.requests) {
		t.Errorf("requests %v, expected %v", again.requests, shop.requests)
	}
	var r receipts
	if err := json.Unmarshal(got.Result, &r); err != nil || r.Retries != 2*items*failures || len(r.Receipts) != items || r.Receipts[items-1] != (receipt{items - 1, 17, "order-7"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// order makes the call, and returns the shop that it has used.
func order(t *testing.T, wasm string, processes bool) (*flaky, stretch) {
	shop := &flaky{requests: map[string]int{}}
	server := httptest.NewServer(shop)
	defer server.Close()
	s := stretch{Wasm: wasm, URL: server.URL}
	if !processes {
		s, err := s.walk(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return shop, s
	}

	file, waits := filepath.Join(t.TempDir(), "stretch.json"), 0
	for more := true; more; more = s.State != nil {
		if err := s.write(file); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), stretchFile+"="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("after %d waits: %v: %s", waits, err, out)
		}
		s = stretch{}
		if err := s.read(file); err != nil {
			t.Fatal(err)
		}
		waits++
		time.Sleep(time.Until(s.Until))
	}

	t.Logf("%d processes", waits)
	if waits < 40 {
		t.Errorf("it has waited %d times only", waits)
	}
	return shop, s
}
