package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/server/wire"
)

// What a command has written is its result if it is the same text, of any size and in
// any pieces.
func TestEcho(t *testing.T) {
	large := strings.Repeat("ä line of a long result \n\n", 200_000)
	for name, test := range map[string]struct {
		pieces []wire.Output
		result string
		is     bool
	}{
		"nothing":               {nil, "", true},
		"nothing written":       {nil, "a", false},
		"spaces only":           {[]wire.Output{{Text: " \n"}, {Text: "\n"}}, "", true},
		"spaces around and in":  {[]wire.Output{{Text: "\n "}, {Text: "a"}, {Text: " \n"}, {Text: "\nb"}, {Text: "\n"}}, "a \n\nb", true},
		"other spaces in":       {[]wire.Output{{Text: "a"}, {Text: " "}, {Text: "b"}}, "a  b", false},
		"large":                 {[]wire.Output{{Text: large[:1000]}, {Text: large[1000:]}}, large, true},
		"large, one byte off":   {[]wire.Output{{Text: large}}, large + ".", false},
		"a part omitted":        {[]wire.Output{{Text: "a", Omitted: 1}}, "a", false},
		"not UTF-8":             {[]wire.Output{{Base64: []byte{0xff}}, {Text: "a"}}, "a", false},
		"of an earlier attempt": {[]wire.Output{{Text: "b", Omitted: 1}, {Attempt: 2, Text: "a"}}, "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			var said echo
			for _, piece := range test.pieces {
				said.take(piece)
			}
			require.Equal(t, test.is, said.is(test.result))
		})
	}
}
