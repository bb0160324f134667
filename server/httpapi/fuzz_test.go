package httpapi

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server"
	"github.com/toolhost/toolhost/server/wire"
)

// FuzzDecode: whatever a body contains, it is accepted as a whole, or refused with a
// problem that names what is wrong.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"tool":"echo","args":{"n":1}}`, `{"tool":1}`, `{"tittle":"x"}`, `[]`, `null`, `"x"`, `{`, `{} {}`, `{"args":{"a":[[[[]]]]}}`,
		`{"tool":"x","timeout_seconds":1e999}`, `{"Tool":"x","tool":"y"}`, "{\"\xff\":1}", `{"cron_expression":5}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in scheduleBody
		err := decode(data, &in)
		if err == nil {
			require.True(t, json.Valid(data))
			return
		}
		p := problemOf(err)
		require.Equal(t, wire.CodeInvalid, p.Code)
		require.NotEmpty(t, p.Detail)
		require.LessOrEqual(t, len(p.Detail), maxDetail+len("…"))
		_, err = json.Marshal(p)
		require.NoError(t, err)
	})
}

// FuzzRange: a range is understood as RFC 9110 means it, or refused.
func FuzzRange(f *testing.F) {
	for _, seed := range []string{"0-", "0-0", "5-4", "-5", "-0", "-", "", "1-2-3", "99999999999999999999-", "+1-2", " 1-2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		r, err := parseRange(spec)
		from, to := r.first, r.last
		if err != nil {
			require.Equal(t, wire.CodeInvalid, problemOf(err).Code)
			return
		}
		first, last, ok := strings.Cut(spec, "-")
		require.True(t, ok)
		none := first == "" && strings.Trim(last, "0") == "" // the last none, which are beyond any end
		require.Equal(t, first == "" && !none, from < 0)
		require.True(t, !none || from == math.MaxInt64)
		require.Equal(t, to == math.MaxInt64, first == "" || last == "" || len(last) > 18 && to == math.MaxInt64)
		require.GreaterOrEqual(t, to, from)
	})
}

// FuzzRequest: no path, query, session or header makes the API panic, and an
// error is a problem.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/runs/bg_1?wait=1s", "default", "bytes=0-")
	f.Add("PUT", "/v1/../v1//runs", "a b", "")
	f.Add("DELETE", "/v1/schedules/%00?x=%ff&x=1", "", "1:2")
	f.Fuzz(func(t *testing.T, method, target, session, other string) {
		r, err := http.NewRequest(method, "http://localhost", nil)
		if err != nil {
			t.Skip()
		}
		u, err := r.URL.Parse(target)
		if err != nil || u.Host != "localhost" {
			t.Skip()
		}
		r.URL = u
		r.Header.Set(wire.SessionHeader, session)
		r.Header.Set("Range", other)
		r.Header.Set("Last-Event-ID", other)
		routes := routes()
		for i := range routes { // what is before the service
			routes[i].handle = func(r *request) error {
				if err := new(follower).resume(r.Header.Get("Last-Event-ID")); err != nil && problemOf(err).Code != wire.CodeInvalid {
					return err
				}
				r.w.WriteHeader(http.StatusNoContent)
				return nil
			}
		}
		a := New(new(server.Service), Config{})
		a.mux = a.newMux(routes)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code < 400 {
			require.Equal(t, http.StatusNoContent, w.Code)
			return
		}
		require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body)
		if method == http.MethodHead {
			return
		}
		var p wire.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body)
		require.Equal(t, w.Code, p.Status)
		require.True(t, utf8.Valid(w.Body.Bytes()))
	})
}

// A panic is a bug of the host: the client is told no more than that, and a client that
// has read the beginning of an answer sees that it is incomplete.
func TestPanics(t *testing.T) {
	var logs strings.Builder
	a := New(new(server.Service), Config{Logger: testLogger(&logs)})
	a.mux = a.newMux([]route{
		raw("/early", func(*request) error { panic("hunter2") }),
		raw("/late", func(r *request) error {
			_, _ = r.w.Write([]byte("half"))
			panic("hunter2")
		}),
	})
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/early", nil))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), `"code":"internal"`)
	require.NotContains(t, w.Body.String(), "hunter2")
	require.Contains(t, logs.String(), "hunter2")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/late", nil))
	})
}

// FuzzWantsEvents: a stream is what a header with a weight of up to 1 asks for, and
// not one with a weight of 0.
func FuzzWantsEvents(f *testing.F) {
	for _, seed := range []string{"", ";q=0", ";q=1", "; q=0.5;x=y", ";q=nan", "; Q = 0.001", ";q=1e9", ";q=-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, params string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", "text/plain, Text/Event-Stream"+params)
		wantsEvents(r)
		for header, want := range map[string]bool{"text/event-stream": true, "a/b, text/event-stream;q=.1": true, "text/event-stream;q=0": false, "*/*": false} {
			r.Header.Set("Accept", header)
			require.Equal(t, want, wantsEvents(r), header)
		}
	})
}

// FuzzDuration: every accepted duration is valid and not negative.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"30s", "1h0m0s", "1.5s", "0", "99999h99999h99999h99999h", "99999.999999999h", "-1s", "+1s", "1", ".5s", "50µs", "1e9s", ""} {
		f.Add(seed)
	}
	p := duration("wait")
	f.Fuzz(func(t *testing.T, text string) {
		if !p.valid(text) {
			return
		}
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		require.GreaterOrEqual(t, d, time.Duration(0))
	})
}
