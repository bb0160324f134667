// Package wiretest tests wire protocols. It plays conversations that are written as
// text: the client's messages and the answers expected from the server.
package wiretest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the server answered into testdata/*.txtar")

// Run runs each conversation in testdata/*.txtar as a subtest in a [synctest]
// bubble: time advances only while all goroutines are waiting, and no goroutine may
// be left at the end.
func Run(t *testing.T, converse func(t *testing.T, file string)) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { converse(t, file) })
		})
	}
}

// Play plays the conversation in a file, which begins with a comment on its purpose.
// Play passes each section to say, along with the words in the section's name, and
// say returns the server's answer. If that answer is not empty, the next section
// must be named as the parameter answer says, and have the same text. With the flag
// -update, Play writes that text.
func Play(t *testing.T, file, answer string, say func(name []string, text []byte) []byte) {
	archive, err := txtar.ParseFile(file)
	require.NoError(t, err)
	require.NotEmpty(t, bytes.TrimSpace(archive.Comment), "the file has to say why it is there")
	var said []byte
	for i := range archive.Files {
		section := &archive.Files[i]
		if section.Name != answer {
			require.Empty(t, said, "-- %s -- stands where the answer should", section.Name)
			said = say(strings.Fields(section.Name), section.Data)
			continue
		}
		if *update {
			section.Data = said
		}
		require.Equal(t, string(section.Data), string(said))
		said = nil
	}
	require.Empty(t, said, "the answer is missing")
	if *update {
		require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o666))
	}
}
