package host

import (
	"os"
	"runtime"

	"github.com/toolhost/toolhost/host/internal/compiler"
)

// CompilerMain makes a program fit to be Config.Compiler. Its main function
// calls it first of all. It returns at once, unless the process was started to
// compile: then it compiles one plugin, in limits and with few rights, and ends
// the process.
func CompilerMain() { compiler.Main() }

// ThisProgram is the path of the program that runs, for Config.Compiler. On Linux
// that is the very file it was started from, also after an update has replaced
// it. It is empty if the system does not tell, so that plugins are compiled in
// process.
func ThisProgram() string {
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
