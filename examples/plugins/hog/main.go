// Plugin hog allocates memory until it gets no more, so only the memory limit can end it.
package main

import (
	"fmt"

	"github.com/toolhost/toolhost/guest"
)

type args struct {
	ChunkMiB int `json:"chunk_mib" desc:"Mebibytes taken at a time" min:"1" max:"64" default:"4"`
}

// pageSize is the distance between the bytes that are written, so that the
// memory is really used.
const pageSize = 4096

func hog(c *guest.Call, in args) (guest.None, error) {
	var taken [][]byte
	for {
		chunk := make([]byte, in.ChunkMiB<<20)
		for i := 0; i < len(chunk); i += pageSize {
			chunk[i] = 1
		}
		taken = append(taken, chunk)
		if _, err := fmt.Fprintf(c.Output(), "took %d MiB\n", len(taken)*in.ChunkMiB); err != nil {
			return guest.None{}, err
		}
	}
}

var plugin = guest.Plugin{
	Name: "hog", Version: "1.0.0", Description: "Takes memory until it gets no more.", License: "Apache-2.0",
	Tools: []guest.Tool{{
		Name:        "hog",
		Description: "Takes memory until it gets no more. Call it to see the memory limit.",
		Handler:     guest.Handle(hog),
		Hints:       guest.Hints{SupportsBackground: true, Readonly: true, OpenWorld: new(false)},
	}},
}

func init() { guest.Serve(&plugin) }

func main() {}
