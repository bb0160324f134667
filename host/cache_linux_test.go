package host_test

import (
	ossignal "os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// limitFiles lets this process write a few bytes to each file, as if the disk
// were full then.
func limitFiles(t *testing.T) {
	ossignal.Ignore(syscall.SIGXFSZ)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 512, Max: 512}))
}
