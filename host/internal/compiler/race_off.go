//go:build !race

package compiler

// dataCanBeLimited reports whether this process can have a limit on its data.
const dataCanBeLimited = true
