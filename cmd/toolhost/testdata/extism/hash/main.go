// A plugin of hyper-mcp, by its first interface, with the tool of its example hash.
package main

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
)

//go:wasmexport describe
func describe() int32 {
	return output(`{"tools": [{"name": "hash", "description": "Hashes a text.", "inputSchema": {"type": "object",
		"properties": {"data": {"type": "string"}, "algorithm": {"enum": ["md5"]}}, "required": ["data", "algorithm"]}}]}`)
}

//go:wasmexport call
func call() int32 {
	var request struct {
		Params struct {
			Arguments struct{ Data string }
		}
	}
	if err := json.Unmarshal([]byte(input()), &request); err != nil {
		return output(fmt.Sprintf(`{"isError": true, "content": [{"type": "text", "text": %q}]}`, err.Error()))
	}
	sum := md5.Sum([]byte(request.Params.Arguments.Data))
	return output(fmt.Sprintf(`{"content": [{"type": "text", "text": "%x"}]}`, sum))
}

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputByte(at uint64) uint32

//go:wasmimport extism:host/env alloc
func alloc(n uint64) uint64

//go:wasmimport extism:host/env store_u8
func store(at uint64, b uint32)

//go:wasmimport extism:host/env output_set
func setOutput(at, n uint64)

func input() string {
	text := make([]byte, inputLength())
	for i := range text {
		text[i] = byte(inputByte(uint64(i)))
	}
	return string(text)
}

// block puts a text into a block of the host.
func block(text string) uint64 {
	at := alloc(uint64(len(text)))
	for i := range len(text) {
		store(at+uint64(i), uint32(text[i]))
	}
	return at
}

func output(text string) int32 {
	setOutput(block(text), uint64(len(text)))
	return 0
}

func main() {}
