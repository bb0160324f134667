package identity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A token for approvals cannot be found by trying: after some guesses none is checked.
func TestApprovalToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const right = "a token of enough length"
		token, err := NewApprovalToken(right)
		require.NoError(t, err)
		require.NoError(t, token.Check(right))
		for i := range guesses {
			require.ErrorIs(t, token.Check(fmt.Sprint(i)), ErrApprovalToken)
		}
		require.ErrorIs(t, token.Check("another"), ErrTooManyGuesses)
		require.ErrorIs(t, token.Check(right), ErrTooManyGuesses)

		time.Sleep(guessEvery)
		require.NoError(t, token.Check(right))
		require.ErrorIs(t, token.Check("another"), ErrApprovalToken)
		require.ErrorIs(t, token.Check("another"), ErrTooManyGuesses)
	})

	none, err := NewApprovalToken("")
	require.NoError(t, err)
	for _, token := range []*ApprovalToken{none, {}, nil} {
		require.ErrorIs(t, token.Check(""), ErrNoApprovalToken)
	}
	_, err = NewApprovalToken("fifteen letters")
	require.ErrorIs(t, err, ErrWeakApprovalToken)
}
