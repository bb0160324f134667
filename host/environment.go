package host

import (
	"bytes"
	crand "crypto/rand"
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
	"github.com/toolhost/toolhost/host/internal/extism"
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
	began   time.Time    // of the call, after its start-up; zero before
	from    int64        // where the monotonic clock stood then, in nanoseconds
	idling  idling
	kernel  extism.Kernel // of a plugin of Extism
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
		argv, err := c.Argv.Expand(c.Args)
		if err != nil {
			return nil, fmt.Errorf("%w: argv: %w", ErrABI, err)
		}
		stdin, err := e.stdin()
		if err != nil {
			return nil, fmt.Errorf("%w: stdin: %w", ErrABI, err)
		}
		config = config.WithStdin(stdin).WithArgs(append([]string{c.Tool}, argv...)...)
	}
	if c.module.Info.Shape != Command {
		config = config.WithStdin(standardInput{e})
	}

	variables := maps.Clone(c.Env)
	if variables == nil || c.module.Info.Shape != Command {
		variables = map[string]string{}
	}
	maps.Copy(variables, c.Policy.Env)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		config = config.WithEnv(name, variables[name])
	}
	config = e.clock(config)
	source := io.Reader(&e.state.Random)
	if c.Policy.Random {
		source = crand.Reader
	}

	return e.mount(config.WithRandSource(randomness{e, source}))
}

// elapsed is the monotonic clock, which continues in the next process in which a call
// does. While the plugin starts up it stands except for reads and sleeps, as the clock of a
// plugin without the grant: so calls can share what has started up, and find that it has
// just done so. It is never 0, which Go's runtime takes for a broken clock.
func (e *environment) elapsed() int64 {
	if e.began.IsZero() {
		return int64(time.Second) + e.tick()
	}
	return e.from + int64(time.Since(e.began))
}

// begin starts the monotonic clock of a call.
func (e *environment) begin(from int64) { e.began, e.from = time.Now(), from }

// tick moves the clock that stands, and reads it.
func (e *environment) tick() int64 {
	e.state.Now += int64(time.Microsecond)
	return e.state.Now
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
				e.state.Now += max(ns, 0)
				e.call.sleep(time.Duration(ns))
				e.call.meter.check() // a sleep that was cut short has no other way to say so
			})
	}

	return config.
		WithWalltime(func() (int64, int32) {
			t := start.Add(time.Duration(e.tick()))
			return t.Unix(), int32(t.Nanosecond())
		}, sys.ClockResolution(time.Microsecond)).
		WithNanotime(e.tick, sys.ClockResolution(time.Microsecond)).
		WithNanosleep(func(ns int64) { e.state.Now += max(ns, 0) })
}

// randomMost is how many random bytes are made between two checks of whether the call
// has to end. It is a multiple of bytesPerUnit.
const randomMost = 64 << 10

// randomness is random bytes that the guest pays for.
type randomness struct {
	*environment
	source io.Reader
}

// Read implements io.Reader. It returns fewer bytes than are asked for rather than
// making more than randomMost; wazero then asks again.
func (r randomness) Read(p []byte) (int, error) {
	p = p[:min(len(p), randomMost)]
	r.call.meter.charge(len(p))
	return r.source.Read(p)
}

// stdin is what a command reads.
func (e *environment) stdin() (io.Reader, error) {
	c := e.call
	if c.Stdin == nil {
		return bytes.NewReader(c.Args), nil
	}
	text, err := abi.ExpandTemplate(*c.Stdin, c.Args)
	return strings.NewReader(text), err
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
	c.show(o.stream, p)
	return len(p), nil
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
