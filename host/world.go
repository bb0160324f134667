package host

import (
	"bytes"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/rootfs"
)

// world is what an instance sees through WASI: stdio, arguments, environment,
// clocks, randomness and folders, each as the policy grants it. Instances
// outlive calls: what a world does it does for the call that runs now.
type world struct {
	*call
	now    int64         // of the clock that stands, in nanoseconds after start
	random *rand.ChaCha8 // of a plugin without randomness
}

// world makes the world of an instance for this call and those with the same
// view. The returned function closes what the guest left open.
func (c *call) world() (*world, wazero.ModuleConfig, func(), error) {
	w := &world{call: c, random: rand.NewChaCha8([32]byte([]byte("toolhost: nothing random granted")))}
	config := wazero.NewModuleConfig().
		WithName("").         // many instances of a module at a time
		WithStartFunctions(). // run explicitly, under this call's limits
		WithStdout(output{w, abi.StreamOutput}).
		WithStderr(output{w, abi.StreamStderr})
	if c.module.Info.Shape == Command && !c.describing {
		config = config.WithStdin(bytes.NewReader(c.Args)).WithArgs(c.argv()...)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Policy.Env)) {
		config = config.WithEnv(name, c.Policy.Env[name])
	}
	config = w.time(config)
	if c.Policy.Random {
		config = config.WithRandSource(randomness{w, crand.Reader})
	} else {
		config = config.WithRandSource(randomness{w, w.random})
	}
	config, release, err := c.mount(config)
	return w, config, release, err
}

func (c *call) mount(config wazero.ModuleConfig) (wazero.ModuleConfig, func(), error) {
	var open []io.Closer
	release := func() {
		for _, fs := range open {
			_ = fs.Close()
		}
	}
	mounts := wazero.NewFSConfig()
	for _, m := range c.Policy.Files {
		fs, err := rootfs.Open(m.Dir, rootfs.Options{ReadOnly: !m.Write})
		if err != nil {
			release()
			return nil, nil, &mountError{m.Path, err}
		}
		open = append(open, fs)
		mounts = mounts.(sysfs.FSConfig).WithSysFSMount(fs, m.Path)
	}
	return config.WithFSConfig(mounts), release, nil
}

// start is where time stands for a plugin without a clock.
var start = time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)

// time gives the guest the real clocks, or one that depends on nothing but what
// the guest does: it moves a microsecond at each look, and as far as it sleeps.
func (w *world) time(config wazero.ModuleConfig) wazero.ModuleConfig {
	if w.Policy.Clock {
		return config.WithSysWalltime().WithSysNanotime().
			WithNanosleep(func(ns int64) {
				w.sleep(time.Duration(ns))
				w.check() // a sleep that was cut short has no other way to say so
			})
	}
	look := func() int64 { w.now += int64(time.Microsecond); return w.now }
	return config.
		WithWalltime(func() (int64, int32) {
			t := start.Add(time.Duration(look()))
			return t.Unix(), int32(t.Nanosecond())
		}, sys.ClockResolution(time.Microsecond)).
		WithNanotime(look, sys.ClockResolution(time.Microsecond)).
		WithNanosleep(func(ns int64) { w.now += max(ns, 0) })
}

// randomness is random bytes the guest pays for.
type randomness struct {
	*world
	source io.Reader
}

func (r randomness) Read(p []byte) (int, error) {
	r.charge(len(p))
	return r.source.Read(p)
}

// argv is the command line of a command: the tool, and its arguments as flags
// if the manifest asks for them.
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
	*world
	stream abi.Stream
}

var errOutputLimit = errors.New("output limit reached")

func (o output) Write(p []byte) (int, error) {
	o.charge(len(p))
	if !o.account(len(p)) {
		return 0, errOutputLimit
	}
	if o.stream == abi.StreamStderr {
		o.stderr.write(p)
		o.emit(o.Stderr, p)
		return len(p), nil
	}
	if o.module.Info.Shape == Command {
		if err := o.keep(len(p)); err != nil {
			o.failed = err
			return 0, errOutputLimit
		}
		o.result = append(o.result, p...)
	}
	o.emit(o.Stdout, p)
	return len(p), nil
}

// emit hands output on. A writer that fails is the caller's business, not the
// guest's.
func (c *call) emit(w io.Writer, p []byte) {
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
			panic(&ended{fmt.Errorf("a writer or a function of the caller panicked: %v", r)})
		}
	}()
	f()
}
