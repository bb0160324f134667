package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only clients that named no session find what is in another one, and only in those
// of the same user.
func TestCanAccess(t *testing.T) {
	one, other := "~/"+strings.Repeat("a", 26), "~/"+strings.Repeat("b", 26)
	require.True(t, canAccess(one, other))
	require.True(t, canAccess("ana/"+one, "ana/"+other))
	for _, pair := range [][2]string{
		{"default", "default"}, {"default", one}, {one, "default"}, {one, "ana/" + other}, {"ana/" + one, other}, {"ana/" + one, "bo/" + other},
		{"ana/x", "ana/" + one}, {"ana/" + one, "ana/x"}, {"ana/x", "ana/y"}, {"a~/x", "a~/y"}, {"", one}, {one, ""}, {"", ""},
	} {
		require.False(t, canAccess(pair[0], pair[1]), pair)
	}
}
