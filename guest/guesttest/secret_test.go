package guesttest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

// TestSecrets: a test says which secrets the operator has named, and which have a value.
func TestSecrets(t *testing.T) {
	p := &guest.Plugin{Name: "demo", Version: "1.0.0", Description: "A demo.", Needs: guest.Needs{Secrets: []string{"token"}}, Tools: []guest.Tool{{
		Name: "ask", Description: "Asks for a secret.", Handler: guest.Handle(func(c *guest.Call, in struct{ Name string }) (string, error) {
			exists, err := c.SecretExists(in.Name)
			switch {
			case errors.Is(err, guest.ErrDenied):
				return "denied", nil
			case exists:
				return "there", err
			}
			return "missing", err
		}),
	}}}
	h := guesttest.Host{Secrets: map[string]bool{"token": true, "other": false}}
	for name, want := range map[string]string{"token": `"there"`, "other": `"missing"`, "third": `"denied"`, "": `"denied"`} {
		out := h.Call(p, "ask", map[string]string{"Name": name})
		require.True(t, out.IsSuccess(), out.Error)
		require.Equal(t, want, string(out.Value))
	}
}
