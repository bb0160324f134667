// Plugin diff compares texts and files, and applies patches.
package main

import (
	"errors"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
)

// maxDiff is the maximum size of a diff, in bytes, because a model has to read it.
const maxDiff = 200_000

type tools struct{ folder folder.Folder }

type diffArgs struct {
	Old     string `json:"old,omitempty" desc:"Old text"`
	New     string `json:"new,omitempty" desc:"New text"`
	OldFile string `json:"old_file,omitempty" desc:"File in the granted folder, in place of the old text"`
	NewFile string `json:"new_file,omitempty" desc:"File in the granted folder, in place of the new text"`
	Context int    `json:"context" desc:"Unchanged lines around each change" min:"1" max:"100" default:"3"`
}

type diffResult struct {
	Diff    string `json:"diff" desc:"Unified diff, empty if nothing differs"`
	Added   int    `json:"added" desc:"Lines"`
	Removed int    `json:"removed" desc:"Lines"`
}

func (t tools) diff(_ *guest.Call, in diffArgs) (out diffResult, _ error) {
	old, oldName, err := t.side(in.Old, in.OldFile, "old")
	if err != nil {
		return out, err
	}
	text, name, err := t.side(in.New, in.NewFile, "new")
	if err != nil {
		return out, err
	}

	// Without context its headers count wrongly: the schema asks for a line at least.
	changed, err := udiff.ToUnifiedDiff(oldName, name, old, udiff.Lines(old, text), in.Context)
	if err != nil {
		return out, err
	}
	for _, hunk := range changed.Hunks {
		for _, line := range hunk.Lines {
			switch line.Kind {
			case udiff.Insert:
				out.Added++
			case udiff.Delete:
				out.Removed++
			}
		}
	}
	if out.Diff = changed.String(); len(out.Diff) > maxDiff {
		return diffResult{}, errors.New("the diff has more than 200,000 bytes: compare smaller parts, or with less context")
	}
	return out, nil
}

// side returns one of the two texts, and its name in the diff.
func (t tools) side(text, file, name string) (string, string, error) {
	switch {
	case file == "":
		return text, name, nil
	case text != "":
		return "", "", errors.New("give either " + name + " or " + name + "_file")
	}
	text, err := t.folder.Text(file)
	return text, file, err
}

func newPlugin(work folder.Folder) *guest.Plugin {
	t := tools{work}
	closed := false
	reads := guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed}
	patch := "--- a/tea.txt\n+++ b/tea.txt\n@@ -1,2 +1,2 @@\n green\n-black\n+white\n"
	return &guest.Plugin{
		Name: "diff", Version: "1.0.0", Description: "Compares texts and files, and applies patches.", License: "Apache-2.0",
		Tools: []guest.Tool{
			{
				Name: "diff", Description: "Compares two texts or files line by line, as a unified diff.",
				Handler: guest.Handle(t.diff), Hints: reads,
				Examples: []guest.Example{{
					Args:   diffArgs{Old: "green\nblack\n", New: "green\nwhite\n", Context: 3},
					Result: diffResult{Diff: "--- old\n+++ new\n@@ -1,2 +1,2 @@\n green\n-black\n+white\n", Added: 1, Removed: 1},
				}},
			},
			{
				Name: "apply", Description: "Applies a unified diff to a text, and returns the new text. Line numbers that are a little wrong do not matter.",
				Handler: guest.Handle(apply), Hints: reads,
				Examples: []guest.Example{
					{Name: "a patch", Args: applyArgs{"green\nblack\n", patch}, Result: "green\nwhite\n"},
					{Name: "of another text", Args: applyArgs{"coffee\n", patch}, Error: "hunk 1 does not fit"},
				},
			},
			{
				Name: "patch", Description: "Applies a unified diff to files in the granted folder: all of it, or nothing if a part does not fit. It can make, rename and remove files.",
				Handler:  guest.Handle(t.patch),
				Hints:    guest.Hints{OpenWorld: &closed, Concurrency: "serial"},
				Examples: []guest.Example{{Name: "outside", Args: patchArgs{"--- a/../../x\n+++ b/../../x\n@@ -1 +1 @@\n-a\n+b\n"}, Error: "leads out of the folder"}},
			},
		},
	}
}

func init() { guest.Serve(newPlugin(folder.Path)) }

func main() {}
