package wasi

import (
	"bytes"
	crand "crypto/rand"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/host/internal/contract"
	"github.com/toolhost/toolhost/host/internal/guestcall"
	"github.com/toolhost/toolhost/host/internal/instance"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// Environment is what an instance sees through WASI: stdio, arguments, environment, clocks,
// randomness and folders, as the policy grants them. An instance outlives its calls, so its
// environment serves one call after another.
type Environment struct {
	call    *Call
	state   instance.Env // the fixed clock and the fixed randomness of a plugin without the grants
	folders []*rootfs.FS // granted folders
	began   time.Time    // time of the call's start, after start-up; zero before
	from    int64        // the monotonic clock at that time, in nanoseconds
	idling  idling
	files   descriptors
}

// NewEnvironment returns the environment of an instance, for this call and for later calls
// that see the same things.
func NewEnvironment(c *Call) *Environment {
	e := &Environment{call: c, files: newDescriptors()}
	e.state.Random.Seed([32]byte([]byte("toolhost: nothing random granted")))
	return e
}

// State returns the state of the instance outside its memory and globals.
func (e *Environment) State() *instance.Env { return &e.state }

// Serve makes the environment serve the call c. If c is nil, the environment serves no
// call, and its functions must not be called.
func (e *Environment) Serve(c *Call) {
	e.call, e.idling, e.began = c, idling{}, time.Time{}
	if c != nil {
		c.env = e
	}
}

// Refused reports whether the guest has tried to write to a read-only folder.
func (e *Environment) Refused() bool { return slices.ContainsFunc(e.folders, (*rootfs.FS).Refused) }

// Close closes the files that the guest left open.
func (e *Environment) Close() {
	for _, folder := range e.folders {
		_ = folder.Close()
	}
}

// Config returns the environment as a wazero configuration.
func (e *Environment) Config() (wazero.ModuleConfig, error) {
	c := e.call
	config := wazero.NewModuleConfig().
		WithName("").         // lets a module have many instances
		WithStartFunctions(). // start functions run explicitly, under this call's limits
		WithStdout(output{e, abi.StreamOutput}).
		WithStderr(output{e, abi.StreamStderr})
	if c.Shape == contract.Command && !c.Ops.Describing {
		line := c.Command.Line
		if c.Argv {
			line = c.Command.Flags
		}
		argv, err := line(c.Args)
		if err != nil {
			return nil, &guestcall.ToolFailure{Message: err.Error()}
		}
		stdin, err := e.stdin()
		if err != nil {
			return nil, &guestcall.ToolFailure{Message: err.Error()}
		}
		config = config.WithStdin(stdin).WithArgs(append([]string{c.Ops.Tool}, argv...)...)
	}
	if c.Shape != contract.Command {
		config = config.WithStdin(standardInput{e})
	}

	variables := map[string]string{}
	if c.Shape == contract.Command {
		if c.Command.Dir != "" {
			variables["PWD"] = c.Command.Dir
		}
		maps.Copy(variables, c.Command.Env)
	}
	maps.Copy(variables, c.Ops.Grant.Env)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		config = config.WithEnv(name, variables[name])
	}
	config = e.clock(config)
	source := io.Reader(&e.state.Random)
	if c.Ops.Grant.Random {
		source = crand.Reader
	}

	return e.mount(config.WithRandSource(randomness{e, source}))
}

// standing reports whether the clocks stand still, except for reads and sleeps: without the
// grant, and while the plugin starts up. So calls can share a started instance, and each sees
// a module that has just started up.
func (e *Environment) standing() bool { return !e.call.Ops.Grant.Clock || e.began.IsZero() }

// Monotonic returns the time on the monotonic clock, in nanoseconds. The clock continues
// when a call continues in another process. With the grant the time is never 0, which Go's
// runtime takes for a broken clock.
func (e *Environment) Monotonic() int64 {
	switch {
	case !e.standing():
		return e.from + int64(time.Since(e.began))
	case e.call.Ops.Grant.Clock:
		return int64(time.Second) + e.state.Now
	}
	return e.state.Now
}

// realtime returns the time of day.
func (e *Environment) realtime() time.Time {
	if e.call.Ops.Grant.Clock {
		return time.Now()
	}
	return start.Add(time.Duration(e.state.Now))
}

// start is the initial time of a plugin without a clock.
var start = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)

// Begin starts the monotonic clock of a call that begins.
func (e *Environment) Begin() { e.Continue(int64(time.Second) + e.state.Now) }

// Continue starts the monotonic clock of a call that continues, at a time in nanoseconds.
func (e *Environment) Continue(from int64) { e.began, e.from = time.Now(), from }

// tick advances a clock that stands still, because it is read.
func (e *Environment) tick() {
	if e.standing() {
		e.state.Now += int64(time.Microsecond)
	}
}

// maxNow is how far sleeps can advance a clock that stands still, in nanoseconds: 146 years.
const maxNow = 1 << 62

// sleep lets the guest sleep. A clock that stands still advances by as much. A sleep that
// it cannot represent takes real time, so that it lasts until the call ends.
func (e *Environment) sleep(ns uint64) {
	c, room := e.call, uint64(math.MaxUint64)
	if e.standing() {
		room = uint64(max(0, maxNow-max(0, e.state.Now)))
		e.state.Now += int64(min(ns, room))
	}
	if c.Ops.Grant.Clock || ns > room {
		c.sleep(time.Duration(min(ns, math.MaxInt64)))
	}
}

// clock gives the guest the real clocks, or a deterministic one, which moves by a
// microsecond at each read, and by the duration of each sleep.
func (e *Environment) clock(config wazero.ModuleConfig) wazero.ModuleConfig {
	resolution := sys.ClockResolution(time.Microsecond)
	if e.call.Ops.Grant.Clock {
		resolution = 1
	}

	return config.
		WithWalltime(func() (int64, int32) {
			e.tick()
			t := e.realtime()
			return t.Unix(), int32(t.Nanosecond())
		}, sys.ClockResolution(time.Microsecond)).
		WithNanotime(func() int64 {
			e.tick()
			return e.Monotonic()
		}, resolution)
}

// randomMost is the number of random bytes made between two checks of whether the call
// has to end. It is a multiple of meter.BytesPerUnit.
const randomMost = 64 << 10

// randomness is a source of random bytes that charges the guest.
type randomness struct {
	*Environment
	source io.Reader
}

// Read implements io.Reader. It returns at most randomMost bytes at a time; wazero
// then calls it again.
func (r randomness) Read(p []byte) (int, error) {
	p = p[:min(len(p), randomMost)]
	r.call.Ops.Meter.Charge(len(p))
	return r.source.Read(p)
}

// stdin is the standard input of a command.
func (e *Environment) stdin() (io.Reader, error) {
	c := e.call
	if c.Command.Stdin == nil {
		return bytes.NewReader(c.Args), nil
	}
	text, err := abi.ExpandTemplate(*c.Command.Stdin, c.Args)
	return strings.NewReader(text), err
}

// output is an output stream of WASI. The stdout of a command is also its
// result.
type output struct {
	*Environment
	stream abi.Stream
}

var errOutputLimit = errors.New("output limit reached")

func (o output) Write(p []byte) (int, error) {
	c := o.call
	c.Ops.Meter.Charge(len(p))
	err := c.Ops.Answer.Count(len(p))
	if err == nil && o.stream == abi.StreamOutput && c.Shape == contract.Command {
		if err = c.Ops.Meter.Keep(len(p)); err == nil {
			c.Ops.Answer.Result = append(c.Ops.Answer.Result, p...)
		}
	}

	if err != nil {
		c.Host.Fail(err) // it ends the call at its next check
		return 0, errOutputLimit
	}
	c.Host.Show(o.stream, p)
	return len(p), nil
}
