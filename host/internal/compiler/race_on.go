//go:build race

package compiler

// The race detector maps terabytes.
const dataCanBeLimited = false
