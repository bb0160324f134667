package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/toolhost/toolhost/host"
)

// Of the plugin that toolhost new makes.
const (
	plugin   = "words"
	tool     = "count"
	args     = `{"text":"one two"}`
	result   = `{"words":2}`
	sentence = "the words of a text" // in the description of its tool
)

// changes is how often the description of the tool is changed, for a median.
const changes = 5

// project is a project in a language, and what making it and its plugin took.
type project struct {
	language
	toolhost, dir string

	commands int           // from an empty folder to the result of a call
	first    time.Duration // that they took together
	lines    int           // of the source that are not empty
	bytes    int           // of the module
	compiled time.Duration // that compiling the module took of the processors, without a cache
	change   time.Duration // from a changed source to the plugin's file, median
	changeOf time.Duration // of the processors, with the compilers
	serve    time.Duration // from that file to the result of its first call, median
	serveOf  time.Duration // of the processors

	missing error // why it was not built: there is no toolchain
	host    *host.Host
	module  *host.Module
}

// errNotBuilt means that toolhost build has failed on the project that toolhost new has made.
var errNotBuilt = errors.New("not built")

// make makes the project and its plugin, and calls its tool, as its author would.
func (p *project) make(ctx context.Context) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	begin := time.Now()
	if _, err := p.command(ctx, "new", p.name, plugin); err != nil {
		return err
	}
	if _, err := p.command(ctx, "build", plugin); err != nil {
		return fmt.Errorf("%w: %w", errNotBuilt, err)
	}
	if _, err := p.command(ctx, "call", "--plugins", plugin, plugin+"_"+tool, args); err != nil {
		return err
	}
	p.first = time.Since(begin)

	source, err := os.ReadFile(p.path(p.source))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(source)) {
		if strings.TrimSpace(line) != "" {
			p.lines++
		}
	}
	if err := p.compile(ctx); err != nil {
		return err
	}
	return p.changed(ctx, string(source))
}

func (p *project) path(name string) string {
	return filepath.Join(p.dir, plugin, filepath.FromSlash(name))
}

// command runs a command of toolhost, and returns the processor time that it took with all
// programs it started.
func (p *project) command(ctx context.Context, args ...string) (time.Duration, error) {
	p.commands++
	cmd := exec.CommandContext(ctx, p.toolhost, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "TOOLHOST_DATA="+filepath.Join(p.dir, "data"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("toolhost %s: %w\n%s", strings.Join(args, " "), err, output.String())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// compile compiles the module and calls its tool, in a host of its own, whose cache is empty.
func (p *project) compile(ctx context.Context) (err error) {
	wasm, err := os.ReadFile(p.path(plugin + ".wasm"))
	if err != nil {
		return err
	}
	p.bytes = len(wasm)
	if p.host, err = host.New(ctx, host.Config{CacheDir: filepath.Join(p.dir, "code")}); err != nil {
		return err
	}
	before := used()
	if p.module, err = p.host.Compile(ctx, wasm); err != nil {
		return err
	}
	p.compiled = used() - before
	_, err = p.call(ctx, p.module)
	return err
}

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // which knows this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// changed changes the description of the tool some times. Each time it builds the plugin
// and calls its tool on the host that has the plugin of before.
func (p *project) changed(ctx context.Context, source string) error {
	if !strings.Contains(source, sentence) {
		return fmt.Errorf("%s: expected %q", p.source, sentence)
	}
	var builds, buildsOf, serves, servesOf []time.Duration
	for n := range changes {
		text := strings.ReplaceAll(source, sentence, fmt.Sprintf("%s, %d", sentence, n))
		if err := os.WriteFile(p.path(p.source), []byte(text), 0o600); err != nil {
			return err
		}
		begin := time.Now()
		cpu, err := p.command(ctx, "build", plugin)
		if err != nil {
			return err
		}
		p.commands-- // it does not count as one of the first commands
		built, before := time.Now(), used()
		if err := p.serveOnce(ctx); err != nil {
			return err
		}
		builds, buildsOf = append(builds, built.Sub(begin)), append(buildsOf, cpu)
		serves, servesOf = append(serves, time.Since(built)), append(servesOf, used()-before)
	}
	p.change, p.changeOf, p.serve, p.serveOf = median(builds), median(buildsOf), median(serves), median(servesOf)
	return nil
}

func (p *project) serveOnce(ctx context.Context) error {
	wasm, err := os.ReadFile(p.path(plugin + ".wasm"))
	if err != nil {
		return err
	}
	m, err := p.host.Compile(ctx, wasm)
	if err != nil {
		return err
	}
	_, err = p.call(ctx, m)
	return errors.Join(err, m.Close(ctx))
}

func (p *project) close() {
	if p.host != nil {
		_ = p.host.Close(context.Background()) // nothing runs
	}
}
