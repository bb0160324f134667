package host

import (
	"bytes"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// environment is what an instance sees through WASI: stdio, arguments, environment,
// clocks, randomness and folders, each as the policy grants it. Instances outlive
// calls: it serves the call that runs now.
type environment struct {
	call    *call
	state   instance.Env // of the clock that stands, and of a plugin without randomness
	open    []io.Closer  // granted folders
	folders []*rootfs.FS // the same
	ahead   int64        // nanoseconds by which its clock is ahead of the host's: a call that continues had another one
	idling  idling
}

// newEnvironment makes the environment of an instance for this call and those with
// the same view.
func newEnvironment(c *call) *environment {
	e := &environment{call: c}
	e.state.Random.Seed([32]byte([]byte("toolhost: nothing random granted")))
	return e
}

// close closes what the guest left open.
func (e *environment) close() {
	for _, folder := range e.open {
		_ = folder.Close()
	}
}

// config is the environment as wazero has it.
func (e *environment) config() (wazero.ModuleConfig, error) {
	c := e.call
	config := wazero.NewModuleConfig().
		WithName("").         // many instances of a module at a time
		WithStartFunctions(). // run explicitly, under this call's limits
		WithStdout(output{e, abi.StreamOutput}).
		WithStderr(output{e, abi.StreamStderr})
	if c.module.Info.Shape == Command && !c.describing {
		config = config.WithStdin(bytes.NewReader(c.Args)).WithArgs(c.argv()...)
	}
	if c.module.Info.Shape != Command {
		config = config.WithStdin(standardInput{e})
	}

	for _, name := range slices.Sorted(maps.Keys(c.Policy.Env)) {
		config = config.WithEnv(name, c.Policy.Env[name])
	}
	config = e.clock(config)
	source := io.Reader(&e.state.Random)
	if c.Policy.Random {
		source = crand.Reader
	}

	return e.mount(config.WithRandSource(randomness{e, source}))
}

// elapsed is the clock that only moves on, also from one process to the next in which a
// call continues. It is never 0, which Go's runtime takes for a broken clock.
func (e *environment) elapsed() int64 {
	return int64(time.Second+time.Since(e.call.host.began)) + e.ahead
}

// start is where time stands for a plugin without a clock.
var start = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)

// clock gives the guest the real clocks, or one that depends on nothing but what
// the guest does: it moves a microsecond each time it is read, and as far as the
// guest sleeps.
func (e *environment) clock(config wazero.ModuleConfig) wazero.ModuleConfig {
	if e.call.Policy.Clock {
		return config.WithSysWalltime().WithNanotime(e.elapsed, sys.ClockResolution(1)).
			WithNanosleep(func(ns int64) {
				e.call.sleep(time.Duration(ns))
				e.call.meter.check() // a sleep that was cut short has no other way to say so
			})
	}

	read := func() int64 { e.state.Now += int64(time.Microsecond); return e.state.Now }
	return config.
		WithWalltime(func() (int64, int32) {
			t := start.Add(time.Duration(read()))
			return t.Unix(), int32(t.Nanosecond())
		}, sys.ClockResolution(time.Microsecond)).
		WithNanotime(read, sys.ClockResolution(time.Microsecond)).
		WithNanosleep(func(ns int64) { e.state.Now += max(ns, 0) })
}

// randomness is random bytes that the guest pays for.
type randomness struct {
	*environment
	source io.Reader
}

func (r randomness) Read(p []byte) (int, error) {
	r.call.meter.charge(len(p))
	return r.source.Read(p)
}

// argv is the command line of a command: the tool, and its arguments as flags if
// the manifest asks for them.
func (c *call) argv() []string {
	argv := []string{c.Tool}
	if !c.Argv {
		return argv
	}

	var args map[string]json.RawMessage
	_ = json.Unmarshal(c.Args, &args) // validated as an object before it gets here
	for _, name := range slices.Sorted(maps.Keys(args)) {
		value := string(args[name])
		switch value[0] {
		case 't', 'f', 'n': // a flag is there or not
			if value == "true" {
				argv = append(argv, "--"+name)
			}
			continue
		case '"':
			_ = json.Unmarshal(args[name], &value)
		}
		argv = append(argv, "--"+name, value)
	}

	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "\x00", "") // which would end it
	}
	return argv
}

// output is an output stream of WASI. What a command writes to stdout is its
// result too.
type output struct {
	*environment
	stream abi.Stream
}

var errOutputLimit = errors.New("output limit reached")

func (o output) Write(p []byte) (int, error) {
	c := o.call
	c.meter.charge(len(p))
	c.screen.charge(len(p))
	err := c.answer.count(len(p))
	if err == nil && o.stream == abi.StreamOutput && c.module.Info.Shape == Command {
		if err = c.meter.keep(len(p)); err == nil {
			c.answer.result = append(c.answer.result, p...)
		}
	}

	if err != nil {
		c.failed = err // which ends the call at its next check
		return 0, errOutputLimit
	}
	c.emit(o.stream, p)
	return len(p), nil
}

// emit hands live output to the caller, without secrets.
func (c *call) emit(stream abi.Stream, p []byte) {
	if p = c.screen.live(stream, p); len(p) > 0 {
		c.show(stream, p)
	}
}

// show hands live output to the caller. A writer that fails is the caller's business,
// not the guest's.
func (c *call) show(stream abi.Stream, p []byte) {
	w := c.Stdout
	if stream == abi.StreamStderr {
		c.answer.stderr.write(p)
		w = c.Stderr
	}
	if w != nil {
		p = bytes.Clone(p) // it is memory of the guest: one that kept it would read another call's
		c.outside(func() { _, _ = w.Write(p) })
	}
}

// outside runs what the caller gave. That it panics is no crash of the guest.
func (c *call) outside(f func()) {
	c.guest.Lend()
	defer c.guest.Reclaim()
	defer func() {
		if r := recover(); r != nil {
			panic(&instance.Stop{Reason: fmt.Errorf("a writer or a function of the caller panicked: %v", r)})
		}
	}()
	f()
}
