// Package registrytest starts a registry for tests. It is the CNCF's registry, built from
// the module in the folder distribution.
package registrytest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/toolhost/toolhost/internal/fulltest"
)

// Start starts an empty registry, which ends with the test, and returns its HOST:PORT. If
// htpasswd is not empty, the registry requires the user and password in that line, which is
// in the format of htpasswd -B. If the registry cannot be built, the test is skipped, but
// in CI it fails.
func Start(t testing.TB, htpasswd string) string {
	fulltest.Only(t, "builds a registry")
	if err := Check(); err != nil {
		t.Skip(err)
	}
	addr, stop, err := Launch(t.TempDir(), htpasswd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return addr
}

// Check returns the reason why no registry is available here, if there is one. CI requires
// a registry: there, [Launch] fails with that reason.
func Check() error {
	if _, err := build(); err != nil && os.Getenv("CI") == "" {
		return fmt.Errorf("no registry: %w", err)
	}
	return nil
}

// Launch starts a registry that keeps its content in a folder. It returns the registry's
// HOST:PORT, and a function that stops it.
func Launch(dir, htpasswd string) (addr string, stop func(), err error) {
	program, err := build()
	if err != nil {
		return "", nil, err
	}
	config := "version: 0.1\nlog: {level: info, formatter: text}\nstorage: {filesystem: {rootdirectory: " + filepath.Join(dir, "data") + "}, delete: {enabled: true}}\nhttp: {addr: 127.0.0.1:0, secret: test}\n"
	if htpasswd != "" {
		file := filepath.Join(dir, "htpasswd")
		if err := os.WriteFile(file, []byte(htpasswd+"\n"), 0o600); err != nil {
			return "", nil, err
		}
		config += "auth: {htpasswd: {realm: test, path: " + file + "}}\n"
	}
	file := filepath.Join(dir, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return "", nil, err
	}
	return serve(exec.Command(program, "serve", file))
}

// listening matches the line that the registry logs once it is listening.
var listening = regexp.MustCompile(`listening on ([0-9.]+:[0-9]+)`)

// serve starts the command, and returns the address that it logs.
func serve(cmd *exec.Cmd) (addr string, stop func(), err error) {
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	logged, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}

	found := make(chan string, 1)
	var lines strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(found)
		for s := bufio.NewScanner(logged); s.Scan(); {
			if at := listening.FindStringSubmatch(s.Text()); at != nil {
				found <- at[1]
			}
			fmt.Fprintln(&lines, s.Text())
		}
	})
	stop = func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
	}

	addr, ok := <-found
	if !ok {
		stop()
		return "", nil, fmt.Errorf("the registry does not start: %s", lines.String())
	}
	return addr, stop, nil
}

// build builds the registry once per process, in a folder that outlives the process.
var build = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "toolhost-test")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}

	program := filepath.Join(dir, fmt.Sprintf("registry-%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir, cmd.Env = filepath.Join(filepath.Dir(here), "distribution"), append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the registry cannot be built: %w: %s", err, out)
	}
	final := filepath.Join(dir, "registry")
	if runtime.GOOS == "windows" {
		final += ".exe"
	}
	return final, os.Rename(program, final) // other processes may be executing the earlier one
})
