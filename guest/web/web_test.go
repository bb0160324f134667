package web_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
	"github.com/toolhost/toolhost/guest/web"
)

// during runs f in a call to a tool of a plugin that may use https://api.example.com/.
func during(t *testing.T, h guesttest.Host, readonly bool, f func(c *http.Client) error) abi.Result {
	t.Helper()
	p := &guest.Plugin{
		Name: "p", Version: "1.0.0", Description: "A test.", Needs: guest.Needs{HTTP: []guest.HTTPNeed{{URL: "https://api.example.com/*", Methods: []string{"*"}}}},
		Tools: []guest.Tool{{Name: "tool", Description: "A test.", Hints: guest.Hints{Readonly: readonly}, Handler: guest.Handle(func(c *guest.Call, _ struct{}) (guest.None, error) {
			return guest.None{}, f(&http.Client{Transport: web.Transport{Call: c}})
		})}},
	}
	return h.Call(p, "tool", struct{}{}).Result
}

func TestTransport(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Play(
		guesttest.Exchange{Method: "POST", URL: "https://api.example.com/a?b=c", Request: "sent", Status: 201, Header: http.Header{"X-Id": {"1"}}, Body: "made"},
		guesttest.Exchange{Method: "POST", URL: "https://api.example.com/a?b=c", Request: "\xff\x00", Bytes: []byte{0xfe}},
		guesttest.Exchange{URL: "https://api.example.com/moved", Status: 307, Header: http.Header{"Location": {"/there"}}},
		guesttest.Exchange{URL: "https://api.example.com/there", Body: "found"},
		guesttest.Exchange{Method: "HEAD", URL: "https://api.example.com/there", Header: http.Header{"Content-Length": {"5"}}},
	)}
	r := during(t, h, false, func(c *http.Client) error {
		for _, e := range []struct{ sent, status, body string }{{"sent", "201 Created", "made"}, {"\xff\x00", "200 OK", "\xfe"}} {
			resp, err := c.Post("https://api.example.com/a?b=c#d", "text/plain", strings.NewReader(e.sent))
			require.NoError(t, err)
			require.Equal(t, e.status, resp.Status)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, e.body, string(body))
			require.Equal(t, int64(len(e.body)), resp.ContentLength)
		}

		resp, err := c.Get("https://api.example.com/moved")
		require.NoError(t, err)
		require.Equal(t, "https://api.example.com/there", resp.Request.URL.String())

		resp, err = c.Head("https://api.example.com/there")
		require.NoError(t, err)
		require.Equal(t, int64(5), resp.ContentLength)
		return nil
	})
	require.True(t, r.IsSuccess(), r.Error)
}

func TestTransportRefusals(t *testing.T) {
	h := guesttest.Host{HTTP: guesttest.Play()}
	get := func(url string) func(*http.Client) error {
		return func(c *http.Client) error {
			_, err := c.Get(url)
			require.ErrorIs(t, err, guest.ErrDenied)
			return err
		}
	}
	require.Contains(t, during(t, h, false, get("https://other.example.com/")).Error, "it is not among the needs of the plugin")
	require.Contains(t, during(t, guesttest.Host{}, false, get("https://api.example.com/")).Error, "set HTTP of the test's Host")
	require.Contains(t, during(t, h, true, func(c *http.Client) error {
		_, err := c.Post("https://api.example.com/", "", nil)
		return err
	}).Error, "a readonly tool may use GET and HEAD only")

	_, err := web.Transport{}.RoundTrip(must(http.NewRequest("GET", "https://api.example.com/", nil)))
	require.ErrorContains(t, err, "no call is running")
}

func TestTransportDeadline(t *testing.T) {
	during(t, guesttest.Host{HTTP: guesttest.Play()}, false, func(c *http.Client) error {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		r := must(http.NewRequestWithContext(ctx, "PUT", "https://api.example.com/", io.NopCloser(failing{t})))
		_, err := c.Do(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return nil
	})
	during(t, guesttest.Host{HTTP: guesttest.Play()}, false, func(c *http.Client) error {
		_, err := c.Post("https://api.example.com/", "", io.MultiReader(strings.NewReader("a"), failing{nil}))
		require.ErrorIs(t, err, errRead)
		return nil
	})
}

// failing is a body that must not be read, or that cannot.
type failing struct{ *testing.T }

var errRead = errors.New("not readable")

func (f failing) Read([]byte) (int, error) {
	if f.T != nil {
		f.Error("the body was read")
	}
	return 0, errRead
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
