// Package c contains the SDK for plugins in C: one header.
package c

import _ "embed"

// Header is the content of toolhost.h.
//
//go:embed toolhost.h
var Header string
