// Package web makes net/http work in a plugin: importing it is enough. In a module for
// wasip1 it sets [http.DefaultTransport]. [http.DefaultClient], [http.Get] and libraries
// built on them can then send the requests that the operator has granted:
//
//	import _ "github.com/toolhost/toolhost/guest/web"
//
// It is a separate package because net/http makes a module 5 to 7 MB larger.
//
// A plugin declares in its needs which requests it makes. The operator grants them
// with rules, which can add secrets to requests. The host checks each request and each
// hop of a redirect. A refused request fails with an error that matches
// [guest.ErrDenied] and says which grant would allow it. If a body is too large, the
// error matches [guest.ErrLimit]. A request that needs a secret without a value ends
// the call: the user has to connect something first.
//
// Responses are returned whole and decompressed, without trailers. The host owns the
// connections, so settings of an [http.Transport] do not apply. The deadline of a
// request's context is its timeout; without a deadline it is 30 seconds. In a module,
// canceling the context or stopping the call ends the request.
//
// In tests, package guesttest plays recorded exchanges instead of using the network.
package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/toolhost/toolhost/guest"
)

// Transport makes requests through the host. The zero Transport uses the call that is
// running. It is safe for concurrent use: several goroutines can make requests at the
// same time.
type Transport struct {
	// Call is the call that makes the requests. Nil means the running call, which
	// exists only in a module for wasip1.
	Call *guest.Call
}

var _ http.RoundTripper = Transport{}

type request struct {
	Method     string      `json:"method"`
	URL        string      `json:"url"`
	Headers    http.Header `json:"headers,omitempty"`
	Body       *string     `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
	TimeoutMS  int64       `json:"timeout_ms,omitempty"`
}

type response struct {
	Status     int         `json:"status"`
	Headers    http.Header `json:"headers"`
	Body       string      `json:"body"`
	BodyBase64 []byte      `json:"body_base64"`
}

// RoundTrip implements [http.RoundTripper]. It does not follow redirects: that is up to the
// [http.Client].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := t.Call
	if c == nil {
		c = guest.Running()
	}
	in, err := encode(r)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, errors.New("web: no call is running: make requests in the handler of a tool")
	}

	var out response
	if err := c.HostContext(r.Context(), "http", in, &out); err != nil {
		return nil, late(r.Context(), err)
	}
	body := out.BodyBase64
	if body == nil {
		body = []byte(out.Body)
	}
	return &http.Response{
		Status: strconv.Itoa(out.Status) + " " + http.StatusText(out.Status), StatusCode: out.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: headers(out.Headers), Body: io.NopCloser(bytes.NewReader(body)), ContentLength: length(r, out.Headers, len(body)), Request: r,
	}, nil
}

// late returns the error of a request. The host may notice a deadline before ctx does.
func late(ctx context.Context, err error) error {
	failure, ok := errors.AsType[*guest.HostError](err)
	deadline, limited := ctx.Deadline()
	if ok && limited && failure.Code == "failed" && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return err
}

// encode reads the body of a request, and closes it.
func encode(r *http.Request) (in request, err error) {
	u := *r.URL
	u.User, u.Fragment, u.RawFragment = nil, "", "" // the client has made a header of the user
	in = request{Method: r.Method, URL: u.String(), Headers: r.Header}
	if r.Host != "" && r.Host != r.URL.Host {
		in.Headers = r.Header.Clone()
		in.Headers.Set("Host", r.Host)
	}
	if deadline, ok := r.Context().Deadline(); ok {
		if in.TimeoutMS = int64((time.Until(deadline) + time.Millisecond - 1) / time.Millisecond); in.TimeoutMS <= 0 {
			err = context.DeadlineExceeded
		}
	}
	if err == nil {
		err = r.Context().Err()
	}
	if r.Body == nil {
		return in, err
	}

	defer r.Body.Close()
	if err != nil {
		return in, err
	}
	body, err := io.ReadAll(r.Body)
	if utf8.Valid(body) {
		text := string(body)
		in.Body = &text
	} else {
		in.BodyBase64 = body
	}
	return in, err
}

func headers(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return h
}

// length returns the content length of a response. A response to HEAD only
// announces it.
func length(r *http.Request, h http.Header, body int) int64 {
	if r.Method != http.MethodHead {
		return int64(body)
	}
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
