package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStaticToken(t *testing.T) {
	token := NewStaticToken("s3cret")
	require.True(t, token.Set())
	require.True(t, token.Matches("s3cret"))
	for _, wrong := range []string{"", "s3cre", "s3cret ", "S3cret"} {
		require.False(t, token.Matches(wrong), wrong)
	}
	for _, none := range []StaticToken{{}, NewStaticToken("")} {
		require.False(t, none.Set())
		require.False(t, none.Matches(""))
	}
}
