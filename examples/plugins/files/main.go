// Plugin files reads and changes text files in a folder that the operator
// grants as /work. The sandbox hides everything else. In addition, the folder
// is opened as an [os.Root], so that paths that lead out of it get a clear
// error.
package main

import "github.com/toolhost/toolhost/guest"

func newPlugin(w workspace) *guest.Plugin {
	reads := guest.Hints{Readonly: true, Idempotent: true, OpenWorld: new(false)}
	writes := guest.Hints{OpenWorld: new(false), Concurrency: "serial"}
	rewrites := writes
	rewrites.Idempotent = true
	escape := []guest.Example{{Name: "outside", Args: pathArgs{"../secret"}, Error: "Path escapes workspace: ../secret"}}
	return &guest.Plugin{
		Name: "files", Version: "1.0.0", Description: "Works on text files in a folder.", License: "Apache-2.0",
		Needs: guest.Needs{Files: []guest.FileNeed{{Path: "/work", Mode: "write"}}},
		Tools: []guest.Tool{
			{
				Name: "read", Description: "Reads a text file, or a part of it by lines.",
				Handler: guest.Handle(w.read), Hints: reads, Examples: escape,
			},
			{
				Name: "write", Description: "Writes a file, and the folders around it. What was in the file before is gone.",
				Handler: guest.Handle(w.write), Hints: rewrites,
			},
			{
				Name: "edit", Description: "Replaces the first occurrence of a text in a file. It is an error if the text does not occur.",
				Handler: guest.Handle(w.edit), Hints: writes,
			},
			{
				Name: "list", Description: "Lists the entries of a folder.",
				Handler: guest.Handle(w.list), Hints: reads,
			},
			{
				Name: "grep", Description: "Finds the lines that match a regular expression, in a file or in all text files below a folder.",
				Handler: guest.Handle(w.grep), Hints: reads,
			},
			{
				Name: "stat", Description: "Tells the type, size and time of change of a file or folder.",
				Handler: guest.Handle(w.stat), Hints: reads, Examples: escape,
			},
			{
				Name: "delete", Description: "Deletes a file, or a folder that is empty.",
				Handler: guest.Handle(w.remove), Hints: writes, Examples: escape,
			},
		},
	}
}

func init() { guest.Serve(newPlugin("/work")) }

func main() {}
