package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/pkg/background"
	"github.com/toolhost/toolhost/server/gotool"
	"github.com/toolhost/toolhost/server/wire"
)

// A call with a key outlives the host: the repeat gets the result of another attempt, or
// an error that says that nobody knows what the first one did.
func TestCallWithAKeyOutlivesTheHost(t *testing.T) {
	for name, test := range map[string]struct {
		hints abi.Hints
		kind  abi.Kind
		text  string
	}{
		"idempotent": {abi.Hints{Idempotent: true}, abi.Success, `"attempt 2"`},
		"readonly":   {abi.Hints{Readonly: true}, abi.Success, `"attempt 2"`},
		"neither":    {abi.Hints{}, abi.Internal, "The host shut down before the run ended. It is not known whether the tool took effect: check that before you call it again"},
	} {
		t.Run(name, func(t *testing.T) {
			started := make(chan struct{}, 10)
			cfg := Config{DataDir: t.TempDir(), Runs: RunsConfig{Grace: time.Millisecond, EndSession: background.EndParked}}
			cfg.Tools = []gotool.Tool{{Name: "letter", Description: "For tests.", Hints: test.hints, Handler: gotool.Handle(
				func(ctx context.Context, c *gotool.Call, _ struct{}) (string, error) {
					started <- struct{}{}
					if c.Attempt() == 1 {
						<-ctx.Done()
						return "", ctx.Err()
					}
					return fmt.Sprintf("attempt %d", c.Attempt()), nil
				})}}
			s, err := Open(t.Context(), cfg)
			require.NoError(t, err)
			call := Request{Session: alice, Tool: "letter", Key: "k"}
			ended := make(chan error)
			go func() {
				_, err := s.Call(t.Context(), call)
				ended <- err
			}()
			<-started
			require.NoError(t, s.Close(done()))
			err = <-ended
			require.Error(t, err)
			require.Equal(t, wire.CodeClosing, ReasonOf(err).Code, "%v", err)

			s, err = Open(t.Context(), cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close(done())) }()
			for range 2 {
				r, err := s.Call(t.Context(), call)
				require.NoError(t, err)
				require.Equal(t, test.kind, r.Kind)
				require.Equal(t, test.text, string(r.Value)+r.Error)
			}
		})
	}
}
