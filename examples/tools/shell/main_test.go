package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, newPlugin(folder.Folder(t.TempDir()))) }

func run(t *testing.T, p *guest.Plugin, script string) (out shellResult) {
	t.Helper()
	answer := guesttest.Call(p, "shell", shellArgs{Script: script, Stdin: "b 2\na 10\nb 1\n", Args: []string{"one", "two words"}})
	require.True(t, answer.IsSuccess(), answer)
	require.NoError(t, json.Unmarshal(answer.Value, &out))
	return out
}

// TestScripts: each prints what GNU's commands print, unless the comment says otherwise.
func TestScripts(t *testing.T) {
	for script, want := range map[string]string{
		`echo "$#: $1, $2"`:                     "2: one, two words\n",
		`cat`:                                   "b 2\na 10\nb 1\n",
		`cat | sort | uniq -c | wc -l`:          "3\n",
		`sort -k2 -n`:                           "b 1\nb 2\na 10\n",
		`sort -r`:                               "b 2\nb 1\na 10\n",
		`sort -u -k1,1`:                         "a 10\nb 2\n",
		`head -n 1; echo -; tail -n1`:           "b 2\n-\n", // what head has read is gone
		`head -2 | tail -1`:                     "a 10\n",
		`tail -n +2`:                            "a 10\nb 1\n",
		`head -c 3`:                             "b 2",
		`wc`:                                    "3 6 13\n", // without padding
		`cut -d ' ' -f 2`:                       "2\n10\n1\n",
		`cut -c 1,3-`:                           "b2\na10\nb1\n",
		`tr a-z A-Z`:                            "B 2\nA 10\nB 1\n",
		`tr -d '0-9\n'`:                         "b a b ",
		`tr -cd '[:digit:]'`:                    "2101",
		`echo aabb | tr -s a`:                   "abb\n",
		`grep b`:                                "b 2\nb 1\n",
		`grep -vn b`:                            "2:a 10\n",
		`grep -c b`:                             "2\n",
		`grep -o '[0-9]*$'`:                     "2\n10\n1\n",
		`grep -q x || echo none`:                "none\n",
		`sed 's/\([a-z]\)/\1/' | head -1`:       "b 2\n", // \( is a parenthesis in RE2
		`sed -E 's/(.) (.*)/\2-\1 &/'`:          "2-b b 2\n10-a a 10\n1-b b 1\n",
		`sed -n '2p'`:                           "a 10\n",
		`sed '/a/,$d'`:                          "b 2\n",
		`sed '1!d; s/b/$1/g'`:                   "$1 2\n",
		`sed 2q`:                                "b 2\na 10\n",
		`seq 3 | xargs echo`:                    "1 2 3\n",
		`printf '1\n2\n' | xargs -I{} echo n{}`: "n1\nn2\n",
		`seq 10 -5 0`:                           "10\n5\n0\n",
		`basename /a/b.txt .txt; dirname /a/b`:  "b\n/a\n",
		`while read -r n m; do echo $m; done`:   "2\n10\n1\n",
		`cat <<< "here"; cat <<E` + "\nx $1\nE\n":                                           "here\nx one\n",
		`f() { local x=$1; echo ${x^^}; }; f ab`:                                            "AB\n",
		`echo $((6 * 7)) $(echo sub) {1..3}`:                                                "42 sub 1 2 3\n",
		`a=(x y); echo ${#a[@]} ${a[1]}`:                                                    "2 y\n",
		`echo hi | tee t > u; cat t u`:                                                      "hi\nhi\n",
		`mkdir -p d/e; touch d/e/f.go d/g; find d -name '*.go'; find d -type d -maxdepth 1`: "d/e/f.go\nd\nd/e\n",
		`mkdir d; echo 1 > d/a; cp d/a d/b; mv d/b c; rm -r d; ls; cat c`:                   "c\n1\n",
		`mkdir d; touch d/.h d/x; ls d; ls -a d; ls d/x`:                                    "x\n.h\nx\nd/x\n",
		`echo a > x; echo b >> x; echo c > y; grep -rn . | sort; cat *`:                     "x:1:a\nx:2:b\ny:1:c\na\nb\nc\n",
		`echo ab > x; sed -i s/a/z/ x; cat x; wc -c x`:                                      "zb\n3 x\n",
		`touch a.x b.x; find . -name '*.x' -delete; ls`:                                     "",
		`echo -n abc | base64; echo -n abc | shasum -a 256 | cut -c 1-8`:                    "YWJj\nba7816bf\n",
		`cd /; pwd`:                                    "/\n",
		`[[ abc =~ ^a(.) ]] && echo yes`:               "yes\n",
		`set -o pipefail; false | true || echo failed`: "failed\n",
		`yes 2>/dev/null; echo $?`:                     "127\n",
		`seq 1000000 | head -n 2`:                      "1\n2\n",
		`(echo a; exit 3); echo $?`:                    "a\n3\n",
		`echo a & wait; echo b`:                        "a\nb\n",
	} {
		t.Run(script, func(t *testing.T) {
			out := run(t, newPlugin(folder.Folder(t.TempDir())), script)
			require.Equal(t, want, out.Stdout, out.Stderr)
		})
	}
}

func TestFailures(t *testing.T) {
	for script, want := range map[string]shellResult{
		"exit 7":                {ExitCode: 7},
		"nope":                  {Stderr: "nope: command not found\n", ExitCode: 127},
		"set -e; false; echo x": {ExitCode: 1},
		"cat missing":           {ExitCode: 1},
		"ls missing":            {ExitCode: 1},
		"grep '(' x":            {ExitCode: 1},
		"sed y":                 {Stderr: "sed: command \"y\" is not supported: there are s, d, p and q\n", ExitCode: 1},
		"head -z":               {Stderr: "head: unknown option -z\n", ExitCode: 1},
		"cut -f 0":              {ExitCode: 1},
		"find -newer x":         {Stderr: "find: -newer is not supported\n", ExitCode: 1},
	} {
		t.Run(script, func(t *testing.T) {
			out := run(t, newPlugin(folder.Folder(t.TempDir())), script)
			require.Equal(t, want.ExitCode, out.ExitCode, out)
			require.Empty(t, out.Stdout)
			if want.Stderr != "" {
				require.Equal(t, want.Stderr, out.Stderr)
			}
		})
	}
}

func TestLongOutput(t *testing.T) {
	out := run(t, newPlugin(folder.Folder(t.TempDir())), "seq 100000")
	require.Less(t, len(out.Stdout), shown+100)
	require.True(t, strings.HasPrefix(out.Stdout, "1\n2\n"))
	require.True(t, strings.HasSuffix(out.Stdout, "99999\n100000\n"))
	require.Contains(t, out.Stdout, "bytes left out")
}

func TestFolderIsThere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	require.Contains(t, guesttest.Call(newPlugin(folder.Folder(missing)), "shell", shellArgs{Script: "ls"}).Error, "no folder is granted")
	_, err := os.Stat(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzSed(f *testing.F) {
	for _, script := range []string{"s/a/b/", "1,$p", "/a/!d", `s|\(|\1&|g`, "2q;$d"} {
		f.Add(script, "a\nb\n")
	}
	f.Fuzz(func(t *testing.T, script, text string) {
		edits, err := parseEdits(script)
		if err != nil {
			return
		}
		var out strings.Builder
		_ = edit(strings.NewReader(text), &out, edits, false)
	})
}
