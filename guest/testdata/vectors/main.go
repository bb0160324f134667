// Plugin vectors is the module of the contract vectors' fixture.
package main

import (
	"github.com/toolhost/toolhost/guest"
	"github.com/toolhost/toolhost/guest/internal/vectors"
)

func init() { guest.Serve(vectors.Plugin()) }

func main() {}
