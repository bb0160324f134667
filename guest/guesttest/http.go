package guesttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/internal/egress"
)

// Exchange is a request and its response.
type Exchange struct {
	Method  string      `json:"method,omitempty"` // method of the request; empty means GET
	URL     string      `json:"url"`
	Request string      `json:"request,omitempty"` // body of the request; empty matches any
	Status  int         `json:"status,omitempty"`  // status of the response; 0 means 200
	Header  http.Header `json:"header,omitempty"`
	Body    string      `json:"body,omitempty"`
	Bytes   []byte      `json:"bytes,omitempty"` // body of the response, if it is not text
}

// Play responds to requests with the given exchanges, for [Host.HTTP]. Each exchange answers
// one request that has the same method, URL and body. If several match, the first is used. A
// request without a match fails.
func Play(exchanges ...Exchange) http.RoundTripper {
	return &player{left: slices.Clone(exchanges)}
}

// RecordEnv is the environment variable that makes [Recorded] record.
const RecordEnv = "TOOLHOST_RECORD"

// Recorded plays the exchanges in a JSON file, as [Play] does. With TOOLHOST_RECORD=1 in the
// environment it makes real requests instead, and writes the exchanges to the file. It does not
// record request headers. Look for secrets in the file before you commit it.
func Recorded(t testing.TB, file string) http.RoundTripper {
	t.Helper()
	if os.Getenv(RecordEnv) == "1" {
		r := &recorder{}
		t.Cleanup(func() { r.save(t, file) })
		return r
	}

	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing: record it with %s=1 in the environment", file, RecordEnv)
	}
	var exchanges []Exchange
	if err == nil {
		err = json.Unmarshal(data, &exchanges)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return Play(exchanges...)
}

type player struct {
	mu   sync.Mutex
	left []Exchange
}

// RoundTrip implements [http.RoundTripper].
func (p *player) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := bodyOf(r)
	if err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.left, func(e Exchange) bool {
		return orGet(e.Method) == orGet(r.Method) && e.URL == r.URL.String() && (e.Request == "" || e.Request == body)
	})
	if i < 0 {
		return nil, fmt.Errorf("guesttest: no exchange is left for %s %s", orGet(r.Method), r.URL)
	}
	e := p.left[i]
	p.left = slices.Delete(p.left, i, i+1)
	return e.response(r), nil
}

func orGet(method string) string {
	if method == "" {
		return http.MethodGet
	}
	return method
}

// bodyOf reads the body of a request and puts it back.
func bodyOf(r *http.Request) (string, error) {
	if r.Body == nil {
		return "", nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return string(body), err
}

func (e Exchange) response(r *http.Request) *http.Response {
	body := e.Bytes
	if body == nil {
		body = []byte(e.Body)
	}
	status, header := e.Status, e.Header.Clone()
	if status == 0 {
		status = http.StatusOK
	}
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// recorder makes requests and records the responses.
type recorder struct {
	mu   sync.Mutex
	kept []Exchange
}

// RoundTrip implements [http.RoundTripper].
func (rec *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	resp, err := network.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}

	e := Exchange{Method: orGet(r.Method), URL: r.URL.String(), Request: sent, Status: resp.StatusCode, Header: resp.Header}
	if e.Body = string(body); !utf8.Valid(body) {
		e.Body, e.Bytes = "", body
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.kept = append(rec.kept, e)
	return e.response(r), nil
}

func (rec *recorder) save(t testing.TB, file string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	data, err := json.MarshalIndent(rec.kept, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o777)
	}
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o666)
	}
	if err != nil {
		t.Errorf("%s: %v", file, err)
	}
}

// network is the transport of the test's own process. While a plugin is called, its
// requests with [http.DefaultTransport] go to [Host].HTTP instead, as they would go to
// the host in a module.
var network = http.DefaultTransport

func init() { http.DefaultTransport = running }

// calls are the running calls.
type calls struct {
	mu  sync.Mutex
	now []*call
}

var running = &calls{}

// enter adds a call until the returned function is called.
func (a *calls) enter(c *call) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = append(a.now, c)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.now = slices.DeleteFunc(a.now, func(other *call) bool { return other == c })
	}
}

// RoundTrip implements [http.RoundTripper] for the latest call that has an HTTP of
// its own, or else for the latest call.
func (a *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	var latest *call
	for _, c := range a.now {
		if latest == nil || c.HTTP != nil {
			latest = c
		}
	}
	a.mu.Unlock()
	if latest == nil {
		return network.RoundTrip(r)
	}
	return latest.roundTrip(r)
}

// roundTrip checks a request like a host that grants what the plugin needs.
func (c *call) roundTrip(r *http.Request) (*http.Response, error) {
	deny := func(format string, args ...any) (*http.Response, error) {
		return nil, &guest.HostError{Op: "http", Code: "denied", Message: fmt.Sprintf(format, args...)}
	}

	u, method := *r.URL, orGet(r.Method)
	u.RawQuery, u.Fragment, u.User = "", "", nil
	if u.Path == "" {
		u.Path = "/"
	}
	policy, err := egress.Compile(c.rules)
	switch {
	case err != nil:
		return deny("the needs of the plugin: %v", err)
	case c.HTTP == nil:
		return deny("http is not granted to this plugin: set HTTP of the test's Host")
	case c.readonly && method != "GET" && method != "HEAD":
		return deny("%s %s is refused: a readonly tool may use GET and HEAD only", method, u.String())
	case !policy.Covers(egress.Rule{URL: strings.ReplaceAll(u.String(), "*", "%2A"), Methods: []string{method}}):
		return deny("%s %s is refused: it is not among the needs of the plugin or the HTTPRules of the test's Host", method, u.String())
	}
	return c.HTTP.RoundTrip(r)
}

// http implements the operation "http".
func (c *call) http(request []byte) (any, error) {
	var in struct {
		Method, URL string
		Headers     http.Header
		Body        string
		Base64      []byte `json:"body_base64"`
	}
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, &guest.HostError{Code: "invalid", Message: "expected a request"}
	}
	body := in.Base64
	if body == nil {
		body = []byte(in.Body)
	}
	r, err := http.NewRequest(in.Method, in.URL, bytes.NewReader(body))
	if err != nil || r.URL.Host == "" {
		return nil, &guest.HostError{Code: "invalid", Message: "url: expected an absolute URL"}
	}
	if in.Headers != nil {
		r.Header = in.Headers
	}

	resp, err := c.roundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	out := map[string]any{"status": resp.StatusCode, "url": in.URL, "headers": resp.Header}
	if utf8.Valid(data) {
		out["body"] = string(data)
	} else {
		out["body_base64"] = data
	}
	return out, err
}
