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
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/extism"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// environment is what an instance sees through WASI: stdio, arguments, environment,
// clocks, randomness and folders, as the policy grants them. Instances outlive
// calls, so it serves the current call.
type environment struct {
	call    *call
	state   instance.Env // the fixed clock and the fixed randomness of a plugin without the grants
	open    []io.Closer  // granted folders
	folders []*rootfs.FS // the same folders
	began   time.Time    // time of the call's start, after start-up; zero before
	from    int64        // the monotonic clock at that time, in nanoseconds
	idling  idling
	kernel  extism.Kernel // kernel of an Extism plugin
}

// newEnvironment returns the environment of an instance for this call and later
// ones with the same view.
func newEnvironment(c *call) *environment {
	e := &environment{call: c}
	e.state.Random.Seed([32]byte([]byte("toolhost: nothing random granted")))
	return e
}

// close closes the files that the guest left open.
func (e *environment) close() {
	for _, folder := range e.open {
		_ = folder.Close()
	}
}

// config returns the environment as a wazero configuration.
func (e *environment) config() (wazero.ModuleConfig, error) {
	c := e.call
	config := wazero.NewModuleConfig().
		WithName("").         // lets a module have many instances
		WithStartFunctions(). // start functions run explicitly, under this call's limits
		WithStdout(output{e, abi.StreamOutput}).
		WithStderr(output{e, abi.StreamStderr})
	if c.module.Info.Shape == contract.Command && !c.describing {
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
	if c.module.Info.Shape != contract.Command {
		config = config.WithStdin(standardInput{e})
	}

	variables := maps.Clone(c.Env)
	if variables == nil || c.module.Info.Shape != contract.Command {
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

// elapsed returns the monotonic clock, which continues when a call continues in another
// process. While the plugin starts up, the clock stands still except for reads and sleeps,
// like the clock of a plugin without the grant. So calls can share a started instance, and
// each sees a module that has just started up. It is never 0, which Go's runtime takes for
// a broken clock.
func (e *environment) elapsed() int64 {
	if e.began.IsZero() {
		return int64(time.Second) + e.tick()
	}
	return e.from + int64(time.Since(e.began))
}

// begin starts the monotonic clock of a call.
func (e *environment) begin(from int64) { e.began, e.from = time.Now(), from }

// tick advances the fixed clock, and reads it.
func (e *environment) tick() int64 {
	e.state.Now += int64(time.Microsecond)
	return e.state.Now
}

// start is the initial time of a plugin without a clock.
var start = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)

// clock gives the guest the real clocks, or a deterministic one, which moves a
// microsecond at each read, and by the duration of each sleep.
func (e *environment) clock(config wazero.ModuleConfig) wazero.ModuleConfig {
	if e.call.Policy.Clock {
		return config.WithSysWalltime().WithNanotime(e.elapsed, sys.ClockResolution(1)).
			WithNanosleep(func(ns int64) {
				e.state.Now += max(ns, 0)
				e.call.sleep(time.Duration(ns))
				e.call.meter.Check() // an interrupted sleep has no other way to report it
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

// randomMost is the number of random bytes made between two checks of whether the
// call has to end. It is a multiple of bytesPerUnit.
const randomMost = 64 << 10

// randomness is a source of random bytes that charges the guest.
type randomness struct {
	*environment
	source io.Reader
}

// Read implements io.Reader. It returns at most randomMost bytes at a time; wazero
// then calls it again.
func (r randomness) Read(p []byte) (int, error) {
	p = p[:min(len(p), randomMost)]
	r.call.meter.Charge(len(p))
	return r.source.Read(p)
}

// stdin is the standard input of a command.
func (e *environment) stdin() (io.Reader, error) {
	c := e.call
	if c.Stdin == nil {
		return bytes.NewReader(c.Args), nil
	}
	text, err := abi.ExpandTemplate(*c.Stdin, c.Args)
	return strings.NewReader(text), err
}

// output is an output stream of WASI. The stdout of a command is also its
// result.
type output struct {
	*environment
	stream abi.Stream
}

var errOutputLimit = errors.New("output limit reached")

func (o output) Write(p []byte) (int, error) {
	c := o.call
	c.meter.Charge(len(p))
	err := c.answer.Count(len(p))
	if err == nil && o.stream == abi.StreamOutput && c.module.Info.Shape == contract.Command {
		if err = c.meter.Keep(len(p)); err == nil {
			c.answer.Result = append(c.answer.Result, p...)
		}
	}

	if err != nil {
		c.failed = err // it ends the call at its next check
		return 0, errOutputLimit
	}
	c.show(o.stream, p)
	return len(p), nil
}

// show passes live output to the caller. The guest does not see its write errors.
func (c *call) show(stream abi.Stream, p []byte) {
	w := c.Stdout
	if stream == abi.StreamStderr {
		c.answer.Stderr.Write(p)
		w = c.Stderr
	}
	if w != nil {
		p = bytes.Clone(p) // p is guest memory: a writer that kept it would read another call's data
		c.ops.Outside(func() { _, _ = w.Write(p) })
	}
}

// sleep is rest for the guest itself, which gives up its processor meanwhile.
func (c *call) sleep(d time.Duration) {
	c.guest.Idle()
	defer c.guest.Compute() // a call that was ended meanwhile ends at its next check
	c.ops.Rest(&c.ctx, d)
}
