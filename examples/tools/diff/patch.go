package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
)

type applyArgs struct {
	Text  string `json:"text" desc:"Text to change"`
	Patch string `json:"patch" desc:"Unified diff of one file, with hunks that begin with @@" min:"1"`
}

func apply(_ *guest.Call, in applyArgs) (string, error) {
	files, err := parse(in.Patch)
	if err != nil {
		return "", err
	}
	if len(files) > 1 {
		return "", fmt.Errorf("the patch is for %d files: give the part for this text", len(files))
	}
	return patched(in.Text, files[0])
}

type patchArgs struct {
	Patch string `json:"patch" desc:"Unified diff, such as git diff makes, of paths in the granted folder" min:"1"`
}

type change struct {
	Path   string `json:"path"`
	Action string `json:"action" enum:"changed,added,removed,renamed"`
	From   string `json:"from,omitempty" desc:"Path before a renaming"`
	text   string
}

type patchResult struct {
	Files []change `json:"files"`
}

// patch works out all changes before it makes the first one.
func (t tools) patch(_ *guest.Call, in patchArgs) (out patchResult, _ error) {
	files, err := parse(in.Patch)
	if err != nil {
		return out, err
	}
	seen := map[string]bool{}
	for _, f := range files {
		c, err := t.change(f)
		if err != nil {
			return patchResult{}, err
		}
		for _, name := range []string{c.Path, c.From} {
			if seen[name] {
				return patchResult{}, fmt.Errorf("the patch is for %s twice: put its hunks below one header", name)
			}
			seen[name] = name != ""
		}
		out.Files = append(out.Files, c)
	}

	for _, c := range out.Files {
		if err := t.make(c); err != nil {
			return patchResult{}, err
		}
	}
	return out, nil
}

// change works out the change that one part of a patch describes.
func (t tools) change(f *gitdiff.File) (c change, err error) {
	c = change{Path: f.NewName, Action: "changed"}
	text := ""
	switch {
	case f.IsBinary || f.IsCopy:
		return c, fmt.Errorf("%s: binary patches and copies are not supported", f.NewName)
	case f.IsNew:
		c.Action = "added"
		err = t.folder.In(c.Path, func(root *os.Root, name string) error {
			if _, err := root.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				return errors.Join(fmt.Errorf("%s is to be added, and is there already", c.Path), err)
			}
			return nil
		})
	default:
		text, err = t.folder.Text(f.OldName)
	}
	if err != nil {
		return c, err
	}

	switch {
	case f.IsDelete:
		c.Path, c.Action = f.OldName, "removed"
	case f.IsRename || !f.IsNew && f.OldName != f.NewName:
		c.From, c.Action = f.OldName, "renamed"
		if err := t.folder.In(c.Path, func(*os.Root, string) error { return nil }); err != nil {
			return c, err
		}
	}
	if c.text, err = patched(text, f); err != nil {
		return c, fmt.Errorf("%s: %w", f.OldName, err)
	}
	if f.IsDelete && c.text != "" {
		return c, fmt.Errorf("%s is to be removed, and has more than the patch removes", c.Path)
	}
	return c, nil
}

// make carries out a change.
func (t tools) make(c change) error {
	if c.Action == "removed" {
		return t.folder.In(c.Path, func(root *os.Root, name string) error { return root.Remove(name) })
	}
	err := t.folder.In(c.Path, func(root *os.Root, name string) error {
		if folder := path.Dir(name); folder != "." {
			if err := root.MkdirAll(folder, 0o777); err != nil {
				return err
			}
		}
		return root.WriteFile(name, []byte(c.text), 0o666)
	})
	if err != nil || c.From == "" {
		return err
	}
	return t.folder.In(c.From, func(root *os.Root, name string) error { return root.Remove(name) })
}

// parse parses a patch, and removes git's a/ and b/ from the file names.
func parse(patch string) ([]*gitdiff.File, error) {
	if len(patch) > folder.MaxText {
		return nil, fmt.Errorf("the patch has %d bytes: at most %d can be read", len(patch), folder.MaxText)
	}
	if strings.HasPrefix(patch, "@@") {
		patch = "--- a/text\n+++ b/text\n" + patch
	}
	if !strings.HasSuffix(patch, "\n") {
		patch += "\n"
	}
	files, _, err := gitdiff.Parse(strings.NewReader(patch))
	if err != nil {
		return nil, fmt.Errorf("the patch is invalid: %w", err)
	}
	if len(files) == 0 {
		return nil, errors.New("the patch is invalid: it has no hunk below --- and +++")
	}
	if !strings.HasPrefix(patch, "diff --git ") && !strings.Contains(patch, "\ndiff --git ") { // else they have lost it
		for _, f := range files {
			f.OldName, f.NewName = withoutPrefix(f.OldName), withoutPrefix(f.NewName)
		}
	}
	return files, nil
}

func withoutPrefix(name string) string {
	if rest, ok := strings.CutPrefix(name, "a/"); ok {
		return rest
	}
	return strings.TrimPrefix(name, "b/")
}

// patched applies the hunks for a file to its text, and returns the result. Each hunk is
// applied where its old lines are, as close as possible to the place that it names.
func patched(text string, f *gitdiff.File) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}

	var out []string
	done := 0 // of lines
	for i, hunk := range f.TextFragments {
		var old, replacement []string
		for _, line := range hunk.Lines {
			if line.Old() {
				old = append(old, line.Line)
			}
			if line.New() {
				replacement = append(replacement, line.Line)
			}
		}
		want := int(min(max(hunk.OldPosition-1, 0), int64(len(lines))))
		if hunk.OldLines == 0 { // the lines come after that one
			want = int(min(hunk.OldPosition, int64(len(lines))))
		}
		at := find(lines, old, done, want)
		if at < 0 {
			return "", fmt.Errorf("hunk %d does not fit: these lines are not in the text after line %d:\n%s", i+1, done, strings.Join(old[:min(len(old), 5)], ""))
		}
		out = append(append(out, lines[done:at]...), replacement...)
		done = at + len(old)
	}
	return strings.Join(append(out, lines[done:]...), ""), nil
}

// find returns the index at which the wanted lines begin, which is at least from and as
// close as possible to near. It returns -1 if they are not there.
func find(lines, wanted []string, from, near int) int {
	fits := func(at int) bool {
		return at >= from && at+len(wanted) <= len(lines) && slices.Equal(lines[at:at+len(wanted)], wanted)
	}
	for distance := range len(lines) + 1 {
		if fits(near - distance) {
			return near - distance
		}
		if fits(near + distance) {
			return near + distance
		}
	}
	return -1
}
