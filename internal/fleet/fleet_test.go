package fleet

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRequestIsReadFirst: a host that answers at once does not cut its answer off.
func TestRequestIsReadFirst(t *testing.T) {
	early := strings.Repeat("early ", 1<<20)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, early)
	}))
	defer backend.Close()
	address, err := url.Parse(backend.URL)
	require.NoError(t, err)
	fleet := &Fleet{hosts: []*host{{url: address}}}

	answer := &recorder{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{})}
	request := httptest.NewRequest(http.MethodPost, "/", &slowEnd{answer: answer, rest: "body"})
	request.ContentLength = 4
	fleet.proxy().ServeHTTP(answer, request)

	require.True(t, answer.Body.String() == early, "the answer is not whole: %d bytes", answer.Body.Len())
	require.Equal(t, http.StatusOK, answer.Code)
}

// A recorder says when the answer begins.
type recorder struct {
	*httptest.ResponseRecorder
	began chan struct{}
}

func (r *recorder) WriteHeader(status int) {
	close(r.began)
	r.ResponseRecorder.WriteHeader(status)
}

// A slowEnd is a body whose end comes late. It is closed when the answer begins, as by the
// server.
type slowEnd struct {
	answer *recorder
	rest   string
}

func (s *slowEnd) Read(p []byte) (int, error) {
	if s.rest != "" {
		n := copy(p, s.rest)
		s.rest = s.rest[n:]
		return n, nil
	}
	select {
	case <-s.answer.began:
		return 0, errors.New("read of a closed body")
	case <-time.After(200 * time.Millisecond):
		return 0, io.EOF
	}
}
