package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/client"
	"github.com/toolhost/toolhost/internal/fulltest"
	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/registry/registrytest"
)

// TestGrantingPage does what docs/granting.md says, in order and to the letter, and
// compares what the commands print with the page.
func TestGrantingPage(t *testing.T) {
	p := newReader(t, "granting.md")
	require.NoError(t, os.MkdirAll(filepath.Join(p.clone, "examples/plugins"), 0o755))
	require.NoError(t, os.Symlink(buildExamples(t), filepath.Join(p.clone, "examples/plugins/dist")))
	p.follow()
}

// TestStarterPage does what docs/starter.md says.
func TestStarterPage(t *testing.T) {
	p := newReader(t, "starter.md")
	require.NoError(t, os.MkdirAll(filepath.Join(p.clone, "examples/plugins"), 0o755))
	require.NoError(t, os.Symlink(buildExamples(t), filepath.Join(p.clone, "examples/plugins/dist")))
	p.follow()
}

// TestBackupPage does what docs/backup.md says.
func TestBackupPage(t *testing.T) { newReader(t, "backup.md").follow() }

// TestScriptsPage does what docs/scripts.md says.
func TestScriptsPage(t *testing.T) {
	p := newReader(t, "scripts.md")
	require.NoError(t, os.MkdirAll(filepath.Join(p.clone, "examples/plugins"), 0o755))
	require.NoError(t, os.Symlink(buildExamples(t), filepath.Join(p.clone, "examples/plugins/dist")))
	p.follow()
}

// TestReachingPage does what docs/reaching.md says: it writes, tests and builds the
// plugins of the page, and calls them.
func TestReachingPage(t *testing.T) {
	p := newReader(t, "reaching.md")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries { // a clone, but for the built examples
		if e.Name() != "examples" {
			require.NoError(t, os.Symlink(filepath.Join(root, e.Name()), filepath.Join(p.clone, e.Name())))
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Join(p.clone, "examples/plugins"), 0o755))
	require.NoError(t, os.Symlink(buildExamples(t), filepath.Join(p.clone, "examples/plugins/dist")))
	p.env = append(p.env, offline(t)...)
	p.follow()
}

// TestCPage does what docs/c.md says: it makes a plugin in C, and calls it as an agent.
func TestCPage(t *testing.T) {
	if _, err := compilerOfC(t.Context()); err != nil {
		t.Skipf("%v: %s", err, installC)
	}
	newReader(t, "c.md").follow()
}

// TestDeployingPage does what docs/deploying.md says, with a registry of its own.
func TestDeployingPage(t *testing.T) {
	p := newReader(t, "deploying.md")
	p.registry = registrytest.Start(t, "")
	p.follow()
}

// With -update the page gets what each command printed, also where it has the command twice.
func TestRenewedPage(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	before := *update
	*update = true
	defer func() { *update = before }()

	page := func(first, second, third string) string {
		return "Text.\n\n```console\n$ cat n 2>&1\n" + first + "$ echo 7 >n\n$ cat n 2>&1\n" + second + "```\n\n```console\n$ cat n 2>&1\n" + third + "```\n"
	}
	dir := filepath.Join(t.TempDir(), "agent")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "n"), []byte("1\n"), 0o600))
	p := &reader{t: t, text: page("1\n", "1\n", "one\n"), dir: dir, addr: "127.0.0.1:7070", ids: map[string]string{}}
	p.start()
	for _, at := range blocks.FindAllStringSubmatchIndex(p.text, -1) {
		p.console(at[4], at[5])
	}
	require.Equal(t, page("1\n", "7\n", "7\n"), p.renewed+p.text[p.done:])
}

// offline is an environment of the go command without a network, with the caches of
// this process.
func offline(t *testing.T) []string {
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	require.NoError(t, err)
	cache := strings.Fields(string(caches))
	return []string{"GOCACHE=" + cache[0], "GOMODCACHE=" + cache[1], "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off"}
}

// A reader follows a page of docs/ in one shell and an empty folder:
//
//   - A block of code after a paragraph that begins with the name of a file and ends
//     with a colon is that file.
//   - In a block of console, lines that begin with "$ " are commands, and the others
//     what they print. "…" stands for any text in a line, or alone for any lines. Times,
//     digests and ids of runs differ, but an id is the same wherever it is repeated.
type reader struct {
	t        *testing.T
	page     string // name
	text     string
	dir      string // where the reader is: the page calls it /srv/agent
	clone    string // $HOME/toolhost
	env      []string
	addr     string            // what the page calls 127.0.0.1:7070
	registry string            // what the page calls 127.0.0.1:5000
	ids      map[string]string // of runs, by their ids in the page
	shell    *exec.Cmd
	in       io.Writer
	codes    *bufio.Scanner // exit codes of the commands

	renewed string // the page with what was printed, up to text[done:]
	done    int
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	fulltest.Only(t, "follows a page of the docs, and builds its plugins")
	if runtime.GOOS == "windows" {
		t.Skip("the page has commands of a Unix shell")
	}
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") == "" {
			t.Skipf("the page has commands of %s, which is not installed", program)
		}
	}
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	home, err := os.MkdirTemp("", "page-*") // the path of a socket must be short
	require.NoError(t, err)
	home, err = filepath.EvalSymlinks(home)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })

	p := &reader{t: t, page: page, text: string(text), dir: filepath.Join(home, "agent"), clone: filepath.Join(home, "toolhost"), addr: freeAddress(t), ids: map[string]string{}}
	data := filepath.Join(p.dir, "data")
	require.NoError(t, os.MkdirAll(data, 0o700))
	require.NoError(t, os.MkdirAll(p.clone, 0o755))
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache"))) // compiled code of all tests
	p.env = append(os.Environ(), "HOME="+home)
	for name, dir := range homeFolders(home) {
		p.env = append(p.env, name+"="+dir)
	}
	return p
}

// freeAddress is an address at which nobody listens. The system gives no connection a port
// of its range.
func freeAddress(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(10_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

var (
	blocks  = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	fileOf  = regexp.MustCompile("(?m)^`([a-zA-Z0-9_./-]+)`[^\n]*:\n\n$")
	runID   = regexp.MustCompile(`bg_[a-z2-7]{26}`)
	varying = regexp.MustCompile(`…|\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?|\b[0-9a-f]{12}\b|\b[0-9a-f]{64}\b|bg_[a-z2-7]{26}|\b\d+(\.\d+)?(µs|ms)\b|\b\d+\.\d [KM]iB\b| {2,}`)
)

// follow does all that the page says.
func (p *reader) follow() {
	p.start()
	commands := 0
	for _, at := range blocks.FindAllStringSubmatchIndex(p.text, -1) {
		kind, body := p.text[at[2]:at[3]], p.text[at[4]:at[5]]
		before := p.text[max(0, at[0]-400):at[0]]
		if i := strings.LastIndex(before[:max(0, len(before)-2)], "\n\n"); i >= 0 {
			before = before[i+2:]
		}

		name := fileOf.FindStringSubmatch(before)
		switch {
		case kind == "console":
			commands += p.console(at[4], at[5])
		case name != nil:
			file := filepath.Join(p.dir, name[1])
			require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(p.t, os.WriteFile(file, []byte(p.here(body)), 0o600))
		}
	}
	require.NotZero(p.t, commands)
	if *update {
		p.save()
	}
}

// start starts the shell, which ends with the test, and with it what it has started.
func (p *reader) start() {
	p.shell = exec.Command("bash", "-m") // with jobs, as at a terminal
	p.shell.Dir, p.shell.Env = p.dir, p.env
	in, err := p.shell.StdinPipe()
	require.NoError(p.t, err)
	out, err := p.shell.StdoutPipe()
	require.NoError(p.t, err)
	p.in, p.codes = in, bufio.NewScanner(out)
	require.NoError(p.t, p.shell.Start())
	p.t.Cleanup(func() {
		fmt.Fprintln(in, "kill -9 $(jobs -p) 2>/dev/null; wait; exit")
		require.NoError(p.t, in.Close())
		_ = p.shell.Wait() // with the code of the last command
	})
}

// here puts the folder and the address of this test into a text of the page.
func (p *reader) here(text string) string {
	return strings.NewReplacer("/srv/agent", p.dir, "127.0.0.1:7070", p.addr, "127.0.0.1:5000", cmp.Or(p.registry, "127.0.0.1:5000"), "localhost:7070", "localhost"+p.addr[strings.LastIndex(p.addr, ":"):]).Replace(text)
}

// console runs the commands of the block text[from:to] and compares what they print. It
// returns how many there are.
func (p *reader) console(from, to int) int {
	const prompt = "\n$ "
	line := 1 + strings.Count(p.text[:from], "\n")
	commands := strings.Split("\n"+p.text[from:to], prompt)
	require.Empty(p.t, strings.TrimSpace(commands[0]), "docs/%s:%d: a block of console begins with a command", p.page, line)

	at := from - 1 + len(commands[0]) // of the prompt
	for _, c := range commands[1:] {
		start := at + len(prompt)
		at = start + len(c)
		command, want, _ := strings.Cut(strings.TrimSuffix(c, "\n"), "\n")
		got := p.run(command)
		if *update && !p.matches(want, got) {
			p.renew(start, strings.TrimSuffix(c, "\n"), command, got)
			continue
		}
		require.True(p.t, p.matches(want, got), "docs/%s:%d: $ %s\n--- the page:\n%s\n--- printed:\n%s", p.page, line, command, want, got)
	}
	return len(commands) - 1
}

// renew notes for the page what the command printed that is old there, at text[start:].
func (p *reader) renew(start int, old, command, got string) {
	got = strings.NewReplacer(p.dir, "/srv/agent", p.addr, "127.0.0.1:7070", cmp.Or(p.registry, "127.0.0.1:5000"), "127.0.0.1:5000").Replace(strings.TrimSuffix(got, "\n"))
	for page, id := range p.ids {
		got, command = strings.ReplaceAll(got, id, page), strings.ReplaceAll(command, id, page)
	}
	p.renewed += p.text[p.done:start] + strings.TrimSuffix(command+"\n"+got, "\n")
	p.done = start + len(old)
}

// save writes the page with what was printed, for a person to read and shorten.
func (p *reader) save() {
	require.NoError(p.t, os.WriteFile("../../docs/"+p.page, []byte(p.renewed+p.text[p.done:]), 0o644))
}

// run runs a command in the shell and returns what it prints.
func (p *reader) run(command string) string {
	for page, id := range p.ids {
		command = strings.ReplaceAll(command, page, id)
	}
	// Tidying looks at the tests of dependencies too, which need not be in the module
	// cache: -e does not fail without them.
	command = strings.Replace(p.here(command), "go mod tidy", "go mod tidy -e", 1)

	printed := filepath.Join(filepath.Dir(p.dir), "printed")
	_, err := fmt.Fprintf(p.in, "(exit $code)\n{ %s\n} >'%s' 2>&1; code=$?; echo $code\n", command, printed)
	require.NoError(p.t, err)
	// Only a broken command gets there. The shell stays, to end the servers of the page.
	stuck := time.AfterFunc(10*time.Minute, func() { _ = exec.Command("pkill", "-KILL", "-P", strconv.Itoa(p.shell.Process.Pid)).Run() })
	defer stuck.Stop()
	require.True(p.t, p.codes.Scan(), "the shell ended in %s", command)
	if strings.Contains(command, "toolhost serve ") && strings.HasSuffix(command, "&") {
		p.ready()
	}

	out, err := os.ReadFile(printed)
	require.NoError(p.t, err)
	return string(out)
}

// ready waits until the server that the page has started is ready.
func (p *reader) ready() {
	c, err := client.New("unix:"+socketPath(filepath.Join(p.dir, "data")), client.Options{})
	require.NoError(p.t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute) // only a broken server gets there
	defer cancel()
	for c.Do(ctx, "GET", "/readyz", nil, nil) != nil {
		require.NoError(p.t, ctx.Err(), "the server does not get ready")
		time.Sleep(10 * time.Millisecond)
	}
}

// matches reports whether a command printed what the page says. Ids of runs that the
// page has for the first time stand for those that were printed.
func (p *reader) matches(want, got string) bool {
	pattern, ids := "", []string{}
	for line := range strings.Lines(p.here(strings.TrimRight(want, "\n")) + "\n") {
		if line == "…\n" {
			pattern += `(?:.*\n)*?`
			continue
		}
		last := 0
		for _, at := range varying.FindAllStringIndex(line, -1) {
			pattern += regexp.QuoteMeta(line[last:at[0]])
			last = at[1]
			switch text := line[at[0]:at[1]]; {
			case text == "…":
				pattern += ".*"
			case text[0] == ' ':
				pattern += " +"
			case runID.MatchString(text) && p.ids[text] != "":
				pattern += p.ids[text]
			case runID.MatchString(text):
				ids = append(ids, text)
				pattern += "(" + runID.String() + ")"
			case strings.HasSuffix(text, "s"): // what a call takes on this machine
				pattern += `\d+(?:\.\d+)?(?:µs|ms|s)`
			case strings.HasSuffix(text, "iB"): // what a compiler of this machine writes
				pattern += `\d+\.\d [KM]iB`
			case strings.Contains(text, ":"):
				pattern += `20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?`
			default:
				pattern += fmt.Sprintf("[0-9a-f]{%d}", len(text))
			}
		}
		pattern += regexp.QuoteMeta(line[last:])
	}
	if strings.TrimSpace(want) == "" {
		pattern = ""
	}

	found := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(got)
	for i, id := range ids {
		if found != nil {
			p.ids[id] = found[i+1]
		}
	}
	return found != nil
}
