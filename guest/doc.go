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
// The module is a reactor, whose main function is never run: call Serve in init.
//
// # Schemas
//
// Struct fields get their names from their json tags. A field is required unless it is a
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
// A tag that would have no effect is an error of the manifest. Such errors are unknown tags in
// arguments, values of the tag secret other than "true" or "false", and tags of fields that are
// not exported. Tags of other encoders, such as yaml, are allowed.
//
// Invalid UTF-8 in a result is a tool error. Return other bytes as []byte. A nil slice,
// map or pointer in a result is null, and the output schema says so. For a field whose
// type refers to itself use [encoding/json.RawMessage].
//
// # Errors
//
// The text of an error that a tool returns is for the model, which can react to it. An
// error made by [ConnectionRequired] asks the user to connect something first. A panic
// in a tool is recovered: the operator sees it with its stack, the model sees one
// generic sentence. A panic in another goroutine ends the instance. A tool that ends
// its goroutine with [runtime.Goexit] counts as having panicked.
//
// # Stopping
//
// A call may be stopped at any time. From then on [Call.Progress], writes,
// [Call.Host] and [Call.Err] return [ErrCanceled]. A tool that calls none of these is
// ended wherever it is. A tool that returns ErrCanceled ends with the tool error
// "canceled", here and in guesttest; a background run that was stopped is recorded as
// canceled.
//
// # Waiting
//
// Ordinary Go code can wait, in any goroutine: with [time.Sleep], or for timers,
// tickers, channels, mutexes, requests over HTTP (see package web), [Call.CallTool],
// [Call.Ask], [Call.Receive] and [Call.Sleep]. Goroutines run while others wait, and so
// do up to 63 operations of the host at a time; further operations wait for their turn.
// As soon as no goroutine can run, the module returns to the host, which resumes it
// when an operation or the first timer ends. A call that waits this way uses no
// processor and no fuel.
//
//   - Nothing preempts a goroutine: one that computes holds up all others until it blocks
//     or uses the call. One that yields in a loop ([runtime.Gosched]) keeps the call from
//     waiting: block on a channel instead.
//   - If all goroutines are blocked and nothing can wake one of them, the call ends as if
//     the tool had panicked. The stacks of all goroutines go to the operator's log.
//   - When the tool returns, its other goroutines end where they are, and their operations
//     are canceled.
//   - If the clock is not granted, time stands still while an operation is pending. While
//     none is, it jumps to the first timer.
//   - A stop ends waiting operations with [ErrCanceled], but not time.Sleep: use
//     [Call.Sleep], or sleep for short times.
//   - A request of more than a mebibyte holds up all goroutines until it is answered.
//
// # Testing
//
// On platforms other than wasip1 a plugin is an ordinary program, and package
// guesttest calls its tools in the test's own process.
package guest
