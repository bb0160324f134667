package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/internal/wasmbin"
)

// HostFunction is a function that an Extism plugin imports because it was written for another
// host. A tool stands in for it: see [abi.Manifest.HostFunctions].
type HostFunction struct {
	Module, Name string
	Type         wasmbin.FuncType
}

func (f HostFunction) String() string { return f.Module + "." + f.Name }

// allowed reports whether a tool could stand in for the function: it takes a block or
// nothing, and returns a block or nothing. Functions of this host's own modules, such as
// the meter, are not replaced.
func (f HostFunction) allowed() bool {
	other := func(v wasmbin.ValType) bool { return v != wasmbin.I64 }
	return !strings.HasPrefix(f.Module, "toolhost") && len(f.Type.Params) <= 1 && len(f.Type.Results) <= 1 &&
		!slices.ContainsFunc(f.Type.Params, other) && !slices.ContainsFunc(f.Type.Results, other)
}

// Missing explains which entry for the function is missing in the manifest.
func (f HostFunction) Missing() string {
	return fmt.Sprintf("the plugin imports %s, a function of the host that it was built for: name a tool that is called in its place, as in host_functions: {%q: TOOL}", f, f.String())
}
