package wait_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/host/internal/wait"
)

// check returns what is wrong with the host's part of a checkpoint.
func check(data []byte) error {
	_, err := new(wait.Pending).Decode(data)
	return err
}

// TestStatesAreHostile: what the host has added to a checkpoint is checked like anything
// from a plugin.
func TestStatesAreHostile(t *testing.T) {
	for _, data := range []string{
		``, `[]`, `{"now":"x"}`, `{"unknown":1}`, `{"last":-1,"pending":[{"id":1}]}`, `{"last":1,"pending":[{"id":1,"op":"sleep"},{"id":1,"op":"sleep"}]}`,
		`{"last":1,"ended":[{"id":1}],"pending":[{"id":1}]}`, `{"last":1,"pending":[{"id":0}]}`, `{"last":1,"ended":[{"id":2}]}`, `{"fuel":-1}`, `{"peak":-1}`, `{"made":-1}`,
		`{"answer":{"bytes":-1}}`, `{"answer":{"logged":-1}}`, `{"last":2147483647}`, `{"last":-5}`, `{} {}`, fmt.Sprintf(`{"last":1,"pending":[{"id":1,"request":%q}]}`, strings.Repeat("AAAA", 1<<19)),
	} {
		require.Error(t, check([]byte(data)), "%.60s", data)
	}
	require.NoError(t, check([]byte(`{"last":2,"pending":[{"id":2,"op":"sleep"}]}`)))
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"last":2,"ended":[{"id":1,"code":2,"response":"e30="}],"pending":[{"id":2,"op":"sleep","request":"e30="}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = check(data) })
}
