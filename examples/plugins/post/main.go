// Plugin post puts letters into a box, one every second. A posted letter cannot be
// taken back. The tool does not claim to be idempotent, so a run that was interrupted
// is never restarted automatically.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	To   []string `json:"to" desc:"Who gets the letter" min:"1" max:"100"`
	Text string   `json:"text" desc:"What is in it"`
}

type posted struct {
	Posted int `json:"posted"`
}

// box is the path of the folder with the posted letters.
type box string

func (b box) post(c *guest.Call, in args) (posted, error) {
	file, err := os.OpenFile(filepath.Join(string(b), "posted.txt"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return posted{}, err
	}
	defer file.Close()
	for i, to := range in.To {
		if err := c.Sleep(time.Second); err != nil { // the call is being stopped: the rest stays here
			return posted{}, fmt.Errorf("%d of %d letters were posted: %w", i, len(in.To), err)
		}
		if _, err := fmt.Fprintf(file, "%q: %q\n", to, in.Text); err != nil {
			return posted{}, err
		}
		fmt.Printf("posted to %q\n", to)
		c.Progress(float64(i+1), float64(len(in.To)), "")
	}
	return posted{len(in.To)}, nil
}

func newPlugin(b box) *guest.Plugin {
	return &guest.Plugin{
		Name: "post", Version: "1.0.0", Description: "Posts letters.", License: "Apache-2.0",
		Needs: guest.Needs{Clock: true, Files: []guest.FileNeed{{Path: "/box", Mode: "write"}}},
		Tools: []guest.Tool{{
			Name: "post", Description: "Posts a letter to each of some people, one a second. A second call posts it again.",
			Handler: guest.Handle(b.post),
			Hints:   guest.Hints{SupportsBackground: true, LongRunning: true, OpenWorld: new(false), Destructive: new(false)},
		}},
	}
}

func init() { guest.Serve(newPlugin("/box")) }

func main() {}
