package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/plugintest"
)

// The tools of the load run. Those that are spawned give back their arguments.
const (
	loadEcho  = "echoes" // gives back its arguments
	loadLarge = "large"  // likewise, up to 1 MiB
	loadFails = "fails"  // is a tool error
	loadSpins = "spins"  // uses up its fuel
	loadQuick = "quick"  // writes loadPage and ends
	loadWorks = "works"  // writes for a second
	loadTardy = "tardy"  // takes three seconds, more than a client that takes tasks waits
	loadSleep = "sleeps" // takes an hour, and ends when it is asked to
)

var loadTools = []string{loadEcho, loadLarge, loadFails, loadSpins, loadQuick, loadWorks, loadTardy, loadSleep}

// loadPage is some output: lines with characters of several bytes, so that a
// piece may end within one.
var loadPage = func() string {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "line %d of the output, größer als nötig …\n", i)
	}
	return b.String()
}()

// loadOutput is what each of the tools writes when it is not stopped.
var loadOutput = map[string]string{
	loadQuick: loadPage,
	loadWorks: "begun\n" + loadPage + "half of it\n" + loadPage + "done\n",
	loadTardy: "begun\n",
	loadSleep: "begun\n",
}

// loadGone is why loadFails could not.
const loadGone = "no such city: Atlantis"

// loadZoo writes the plugins of the load run to a folder.
func loadZoo(t *testing.T) string {
	t.Helper()
	dir, do := t.TempDir(), plugintest.Do
	say := func(p *plugintest.Program, text string) *plugintest.Program { return p.Say(abi.StreamOutput, text) }
	for name, invoke := range map[string]*plugintest.Program{
		loadEcho:  do().Echo(),
		loadLarge: do().EchoUpTo(1 << 20),
		loadFails: do().Say(abi.StreamError, loadGone).Return(abi.InvokeToolError),
		loadSpins: do().Spin(),
		loadQuick: say(do(), loadPage).Echo(),
		loadWorks: say(say(say(say(do(), "begun\n"), loadPage).Progress("half way").Sleep(1), "half of it\n"+loadPage), "done\n").Echo(),
		loadTardy: say(do(), "begun\n").Sleep(3).Echo(),
		loadSleep: say(do(), "begun\n").Sleep(3600).Echo(),
	} {
		m := plugintest.Manifest(name)
		m.Needs.Clock = true
		m.Tools[0].Hints = abi.Hints{Readonly: true, Idempotent: true, SupportsBackground: loadOutput[name] != ""}
		wasm := plugintest.Plugin{Manifest: m, Invoke: invoke}.Wasm()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".wasm"), wasm, 0o600))
	}
	return dir
}

// loadConfiguration is that of a server with those plugins: the defaults, the
// clock for those that sleep, and time for all, however slow the machine is. Warm instances are kept for less time, so that the
// test does not have to wait for them to be freed.
func loadConfiguration(warm time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "host: {warm_for: %s}\nlimits: {timeout: 1h, background: 1h}\ngrants:\n", warm)
	for _, name := range loadTools {
		fmt.Fprintf(&b, "  %s: {clock: true}\n", name)
	}
	return b.String()
}
