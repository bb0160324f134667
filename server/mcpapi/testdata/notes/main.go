// Plugin notes writes each effect of its tools into a file. A check of agent programs
// counts them there.
package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolhost/toolhost/guest"
)

const folder = "/data"

type note struct {
	Text string `json:"text"`
}

type event struct {
	Name string `json:"name" desc:"File whose appearance ends the wait"`
}

type none struct{}

// write appends a line to the file of effects.
func write(line string) error {
	f, err := os.OpenFile(filepath.Join(folder, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// add reports progress first, so that a client that follows progress gets a stream.
func add(c *guest.Call, in note) (note, error) {
	return in, errors.Join(c.Progress(1, 2, "adding"), write("added "+in.Text))
}

func say(_ *guest.Call, in note) (string, error) {
	if in.Text == "" {
		return "", errors.New("nothing to say: text is empty")
	}
	return "said " + in.Text, nil
}

func length(_ *guest.Call, in note) (int, error) { return len(in.Text), nil }

func wait(c *guest.Call, in event) (string, error) {
	for {
		_, err := os.Stat(filepath.Join(folder, in.Name))
		if err == nil {
			return "waited for " + in.Name, write("waited " + in.Name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := c.Sleep(50 * time.Millisecond); err != nil {
			return "", err
		}
	}
}

func wipe(*guest.Call, none) (string, error) { return "wiped all", write("wiped") }

func main() {}

func init() {
	hints := guest.Hints{Destructive: new(false), OpenWorld: new(false)}
	reads, waits := hints, hints
	reads.Readonly, waits.SupportsBackground = true, true
	guest.Serve(&guest.Plugin{
		Name: "notes", Version: "1.0.0", Description: "Keeps notes.", License: "Apache-2.0",
		Needs: guest.Needs{Clock: true, Files: []guest.FileNeed{{Path: folder, Mode: "write"}}},
		Tools: []guest.Tool{
			{Name: "add", Description: "Adds a note.", Handler: guest.Handle(add), Hints: hints},
			{Name: "say", Description: "Repeats a text.", Handler: guest.Handle(say), Hints: reads},
			{Name: "length", Description: "Measures a text, in bytes.", Handler: guest.Handle(length), Hints: reads},
			{Name: "wait", Description: "Waits for an event.", Handler: guest.Handle(wait), Hints: waits},
			{Name: "wipe", Description: "Deletes all notes.", Handler: guest.Handle(wipe), Approval: "required"},
		},
	})
}
