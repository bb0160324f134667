//go:build !race

package compiler

// dataCanBeLimited reports whether this process can limit its data.
const dataCanBeLimited = true
