// Package guest is the Go SDK for plugins. A tool is a typed Go function; its
// JSON Schemas and the plugin's manifest come from the types and their tags:
//
//	package main
//
//	import (
//		"strings"
//
//		"github.com/toolhost/toolhost/guest"
//	)
//
//	type args struct {
//		Text string `json:"text" desc:"Text to count"`
//	}
//
//	func count(c *guest.Call, in args) (int, error) {
//		return len(strings.Fields(in.Text)), nil
//	}
//
//	var plugin = guest.Plugin{
//		Name: "words", Version: "1.0.0", Description: "Counts words.",
//		Tools: []guest.Tool{{Name: "words", Description: "Counts words.", Handler: guest.Handle(count)}},
//	}
//
//	func init() { guest.Serve(&plugin) }
//	func main() {}
//
// Build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -trimpath -o words.wasm .
//
// Serve belongs into init because a module built this way is a reactor: its
// main function is never run.
//
// # Schemas
//
// Struct fields are named by their json tag. A field is required unless it is a
// pointer, is tagged omitempty or omitzero, or has a default. Further tags:
//
//	tag       JSON Schema                    on
//	desc      description                    every field
//	enum      enum, separated by commas      strings and numbers, and slices of them
//	min, max  minimum, maximum               numbers
//	          minLength, maxLength           strings, in characters
//	          minItems, maxItems             slices
//	pattern   pattern                        strings
//	format    format                         strings
//	default   default, set before decoding   strings, numbers and booleans of the arguments' own struct
//	example   examples                       every field; JSON, but strings as they are
//	secret    writeOnly, if "true"           every field; neither shown nor stored with a background run
//
// A nil slice, map or pointer in a result is null in JSON, and the output
// schema says so. Types that refer to themselves have no schema here; use
// [encoding/json.RawMessage] for such a field.
//
// # Errors
//
// An error a tool returns is a tool error: its text is for the model, which can
// react to it. An error made by [ConnectionRequired] asks the user to connect
// something first. A panic in a tool is recovered: the operator sees it with its
// stack, the model sees one generic sentence. A panic in a goroutine that the tool
// started cannot be recovered and ends the instance.
//
// # Stopping
//
// A call may be stopped at any time. From then on [Call.Progress], writes and
// [Call.Host] return [ErrCanceled], and so does [Call.Err]. A tool that calls none
// of these is ended wherever it is.
//
// # Testing
//
// On any other platform than wasip1 a plugin is an ordinary program, and
// package guesttest calls its tools in the test's own process.
package guest
