package grant

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/toolhost/toolhost/abi"
)

// Mount grants a folder of the host to a plugin. Links cannot lead out of the
// folder.
type Mount struct {
	Dir  string       // folder of the host
	Path string       // absolute path in the sandbox, such as / or /work
	Mode abi.FileMode // what the plugin may do there; empty means abi.FileRead
}

// filesCapability grants folders, used through WASI.
var filesCapability = Capability{
	Name: "files", Doc: "folders of the host",
	Missing: func(n abi.Needs, g Grant) []string {
		return texts(g.lackingFiles(n), func(f abi.FileNeed) string { return folderText(f.Path, f.Mode) })
	},
	Lacking: func(n abi.Needs, g Grant, add *Grant) {
		for _, f := range g.lackingFiles(n) {
			m := Mount{Dir: "/" + Choose, Path: f.Path, Mode: f.Mode}
			if i := slices.IndexFunc(g.Files, func(m Mount) bool { return m.Path == f.Path }); i >= 0 {
				m.Dir = g.Files[i].Dir // it is granted for reading
			}
			add.Files = append(add.Files, m)
		}
	},
	Granted: func(g Grant) []string {
		return texts(g.Files, func(m Mount) string { return folderText(m.Path, cmp.Or(m.Mode, abi.FileRead)) })
	},
	Check: func(g Grant) (problems []GrantProblem) {
		for i, m := range g.Files {
			at := fmt.Sprintf("files.%d.", i)
			if m.Dir == "" {
				problems = append(problems, GrantProblem{at + "dir", "expected a folder"})
			}
			if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path {
				problems = append(problems, GrantProblem{at + "path", fmt.Sprintf("expected a clean absolute path, such as /work, found %q", m.Path)})
			}
			if m.Mode != "" && m.Mode != abi.FileRead && m.Mode != abi.FileWrite {
				problems = append(problems, GrantProblem{at + "mode", fmt.Sprintf("expected read or write, found %q", m.Mode)})
			}
		}
		return problems
	},
	Writes: func(g Grant) bool {
		return slices.ContainsFunc(g.Files, func(m Mount) bool { return m.Mode == abi.FileWrite })
	},
}

// lackingFiles returns the folders that a plugin needs and the grant does not cover.
func (g Grant) lackingFiles(n abi.Needs) []abi.FileNeed {
	return slices.DeleteFunc(slices.Clone(n.Files), func(f abi.FileNeed) bool {
		return slices.ContainsFunc(g.Files, func(m Mount) bool { return m.Path == f.Path && (m.Mode == abi.FileWrite || f.Mode == abi.FileRead) })
	})
}

func folderText(folder string, mode abi.FileMode) string {
	return fmt.Sprintf("files %s (%s)", folder, mode)
}

// envCapability grants environment variables, read through WASI.
var envCapability = Capability{
	Name: "env", Doc: "environment variables",
	Missing: func(n abi.Needs, g Grant) []string { return texts(g.lackingEnv(n), envText) },
	Lacking: func(n abi.Needs, g Grant, add *Grant) {
		for _, name := range g.lackingEnv(n) {
			if add.Env == nil {
				add.Env = map[string]string{}
			}
			add.Env[name] = Choose
		}
	},
	Granted: func(g Grant) []string { return texts(slices.Sorted(maps.Keys(g.Env)), envText) },
}

func envText(name string) string { return "env " + name }

// lackingEnv returns the variables that a plugin needs and the grant does not include.
func (g Grant) lackingEnv(n abi.Needs) []string {
	return slices.DeleteFunc(slices.Clone(n.Env), func(name string) bool { _, granted := g.Env[name]; return granted })
}
