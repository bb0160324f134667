package host

import (
	"os"
	"runtime"
	"sync/atomic"

	"github.com/toolhost/toolhost/host/internal/compiler"
)

// CompilerMain makes a program fit to be Config.Compiler. Its main function
// calls it first of all. It returns at once, unless the process was started to
// compile: then it compiles one plugin, in limits and with few rights, and ends
// the process.
func CompilerMain() {
	compiler.Main()
	compilerMain.Store(true)
}

var compilerMain atomic.Bool // CompilerMain was called

// ThisProgram is the path of the program that runs, for Config.Compiler. On Linux
// that is the very file it was started from, also after an update has replaced
// it. It is empty, so that plugins are compiled in process, if the system does
// not tell, or if CompilerMain was not called: the program would start itself
// again and again.
func ThisProgram() string {
	if !compilerMain.Load() {
		return ""
	}
	if runtime.GOOS == "linux" {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			return "/proc/self/exe"
		}
	}

	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}
