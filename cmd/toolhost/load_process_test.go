package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
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

	"github.com/toolhost/toolhost/internal/plugintest"
	"github.com/toolhost/toolhost/internal/testlog"
)

// serveProfiled is the command under load: toolhost with its profiles at an
// address of their own, which the product does not have.
func serveProfiled() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	fmt.Fprintf(os.Stderr, "profiles at http://%s\n", l.Addr())
	go func() { _ = http.Serve(l, mux) }()
	main()
}

// serveBare reads every request and answers it with the file of its argument:
// what HTTP alone costs.
func serveBare() {
	answer, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "profiles at http://%s\nlistening on http://%[1]s\nready: \n", l.Addr())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
}

// loadProcess is a server in a process of its own.
type loadProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	said   *testlog.Buffer
	base   string // URL
	debug  string // URL of its profiles
	socket string
}

// startProcess starts one of the commands of TestMain, and waits until it is
// ready.
func startProcess(t *testing.T, command string, args ...string) *loadProcess {
	t.Helper()
	name, err := os.Executable()
	require.NoError(t, err)
	p := &loadProcess{t: t, said: new(testlog.Buffer)}
	p.cmd = exec.Command(name)
	p.cmd.Args = append([]string{command}, args...)
	p.cmd.Stderr = p.said
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	require.Eventually(t, func() bool { return strings.Contains(p.said.String(), "ready: ") }, 2*time.Minute, 5*time.Millisecond, "%s", p.said)
	p.base, p.debug = p.address(`listening on (http://[\d.:]+)`), p.address(`profiles at (http://[\d.:]+)`)
	return p
}

// startLoaded starts a server on a folder of plugins, with a data folder of its
// own, at an address and at its socket. Its log is JSON.
func startLoaded(t *testing.T, zoo, config string) *loadProcess {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.MkdirAll(plugintest.CacheDir(), 0o700))
	require.NoError(t, os.Symlink(plugintest.CacheDir(), filepath.Join(data, "cache")))
	file := filepath.Join(dir, "toolhost.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	p := startProcess(t, "toolhost-profiled", "serve", "--config", file, "--data", data, "--plugins", zoo,
		"--listen", "127.0.0.1:0", "--log-format", "json")
	p.socket = socketPath(data)
	return p
}

func (p *loadProcess) address(pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(p.said.String())
	require.NotNil(p.t, found, "%s", p.said)
	return found[1]
}

// end asks the process to end, and returns the lines of its log of level error.
func (p *loadProcess) end() (errors []string) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(p.t, p.cmd.Wait(), "%s", p.said)
	for line := range strings.Lines(p.said.String()) {
		if strings.Contains(line, `"level":"ERROR"`) || strings.HasPrefix(line, "panic:") {
			errors = append(errors, line)
		}
	}
	return errors
}

// hasProc says whether the system reports what a process uses.
const hasProc = runtime.GOOS == "linux"

// cpu is the time of processors the process had, to a hundredth of a second.
func (p *loadProcess) cpu() time.Duration {
	stat := p.proc("stat")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // from the third one on
	var ticks int64
	for _, field := range fields[11:13] { // user and system, see proc(5)
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(p.t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// resident is the memory of the process in bytes, and the most it had.
func (p *loadProcess) resident() (now, most int64) {
	for line := range strings.Lines(p.proc("status")) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d", &now)
		_, _ = fmt.Sscanf(line, "VmHWM: %d", &most)
	}
	return now << 10, most << 10
}

// files is how many descriptors the process has open.
func (p *loadProcess) files() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	return len(entries)
}

func (p *loadProcess) proc(name string) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name))
	require.NoError(p.t, err)
	return string(data)
}

// goroutines is how many there are, but for those that tell.
func (p *loadProcess) goroutines() int {
	var n int
	_, err := fmt.Sscanf(p.profile("goroutine?debug=1"), "goroutine profile: total %d", &n)
	require.NoError(p.t, err)
	return n
}

// heap is what the process keeps after a collection, and what stacks take, in
// bytes.
func (p *loadProcess) heap() (kept, stacks int64) {
	s := bufio.NewScanner(strings.NewReader(p.profile("heap?gc=1&debug=1")))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		_, _ = fmt.Sscanf(s.Text(), "# HeapAlloc = %d", &kept)
		_, _ = fmt.Sscanf(s.Text(), "# Stack = %d", &stacks)
	}
	return kept, stacks
}

func (p *loadProcess) profile(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // only a broken server gets there
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.debug+"/debug/pprof/"+name, nil)
	require.NoError(p.t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return string(data)
}
