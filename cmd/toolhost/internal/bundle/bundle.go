// Package bundle bundles JavaScript and TypeScript, along with imported npm packages,
// into one ES module. It does not need Node.
package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/toolhost/toolhost/guest/js"
)

// Error lists the problems in the source of a module.
type Error struct{ Messages []string }

func (e *Error) Error() string { return strings.Join(e.Messages, "\n") }

// The modules that tools import but that come from no package.
const (
	library = "toolhost"
	files   = "node:fs/promises"
)

var libraries = map[string]string{library: js.Library, files: js.Files}

// Module bundles the module in a file, for use by [js.Plugin]. If the sources are at
// fault, the error is an [*Error].
func Module(file string) ([]byte, error) {
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}

	result := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(dir, filepath.Base(file))}, AbsWorkingDir: dir, Outfile: filepath.Join(dir, "tool.js"),
		Bundle: true, Format: api.FormatESModule, Platform: api.PlatformNeutral, Target: api.ES2023,
		MainFields: []string{"module", "main"}, Conditions: []string{"import", "module", "default"},
		Define:  map[string]string{"process.env.NODE_ENV": `"production"`},
		Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsInline, TreeShaking: api.TreeShakingTrue,
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude,
		Plugins: []api.Plugin{{Name: library, Setup: setup}},
	})
	if len(result.Errors) > 0 {
		return nil, newError(result.Errors)
	}

	var module, sourceMap []byte
	for _, out := range result.OutputFiles {
		if strings.HasSuffix(out.Path, ".map") {
			sourceMap = out.Contents
		} else {
			module = out.Contents
		}
	}
	lines, err := originOf(sourceMap)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: source map: %w", file, err)
	}
	text, err := json.Marshal(lines)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.TrimRight(module, "\n"), "\n//# lines="...), text...), nil
}

// setup makes the bundler resolve the libraries.
func setup(b api.PluginBuild) {
	b.OnResolve(api.OnResolveOptions{Filter: `^toolhost$`}, func(api.OnResolveArgs) (api.OnResolveResult, error) {
		return api.OnResolveResult{Path: library, Namespace: library}, nil
	})
	b.OnResolve(api.OnResolveOptions{Filter: `^(node:)?fs/promises$`}, func(api.OnResolveArgs) (api.OnResolveResult, error) {
		return api.OnResolveResult{Path: files, Namespace: library}, nil
	})
	b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: library}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		text := libraries[args.Path]
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
	})

	b.OnResolve(api.OnResolveOptions{Filter: `^(node:)?(fs|path|os|child_process|http|https|net|crypto|stream|util|buffer|url|zlib|worker_threads)(/.*)?$`},
		func(args api.OnResolveArgs) (api.OnResolveResult, error) {
			if args.Kind == api.ResolveEntryPoint {
				return api.OnResolveResult{}, nil
			}
			return api.OnResolveResult{}, fmt.Errorf("%s is a module of Node, which tools do not have: use node:fs/promises, what the web has, such as fetch, URL and TextEncoder, or a package that does", args.Path)
		})
}

// newError returns an error with the bundler's messages, each with its position.
func newError(messages []api.Message) *Error {
	e := &Error{}
	for _, m := range messages {
		text := m.Text
		if l := m.Location; l != nil {
			text = fmt.Sprintf("%s:%d:%d: %s", l.File, l.Line, l.Column+1, m.Text)
			if line := strings.TrimSpace(l.LineText); line != "" {
				text += "\n    " + line
			}
		}
		if strings.HasPrefix(m.Text, "Could not resolve") && !strings.Contains(m.Text, `"."`) {
			text += "\n    if it is a package of npm, install it with npm install"
		}
		e.Messages = append(e.Messages, text)
	}
	return e
}

// lines records where each line of a module comes from: nowhere, or the number of a file
// and of a line in that file, counted from 1.
type lines struct {
	Files []string  `json:"files"`
	Lines []*[2]int `json:"lines"`
}

var errMap = errors.New("malformed mappings")

// originOf reads the first position of each line from a source map.
func originOf(sourceMap []byte) (*lines, error) {
	var m struct {
		Sources  []string
		Mappings string
	}
	if err := json.Unmarshal(sourceMap, &m); err != nil {
		return nil, err
	}

	out := &lines{Files: m.Sources, Lines: []*[2]int{}}
	source, line := 0, 0
	for group := range strings.SplitSeq(m.Mappings, ";") {
		var first *[2]int
		for segment := range strings.SplitSeq(group, ",") {
			fields, err := vlq(segment)
			if err != nil {
				return nil, err
			}
			if len(fields) < 4 {
				continue
			}
			source, line = source+fields[1], line+fields[2]
			if first == nil {
				first = &[2]int{source, line + 1}
			}
		}
		out.Lines = append(out.Lines, first)
	}
	return out, nil
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// vlq decodes the numbers in a segment of a source map.
func vlq(segment string) (numbers []int, err error) {
	n, shift := 0, 0
	for _, c := range []byte(segment) {
		d := strings.IndexByte(base64Digits, c)
		if d < 0 || shift > 30 {
			return nil, errMap
		}
		n |= d & 31 << shift
		shift += 5
		if d&32 != 0 {
			continue
		}
		if n&1 != 0 {
			n = -(n >> 1)
		} else {
			n >>= 1
		}
		numbers = append(numbers, n)
		n, shift = 0, 0
	}
	if shift != 0 {
		return nil, errMap
	}
	return numbers, nil
}
