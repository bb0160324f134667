// A plugin of Extism that calls a function of the host that it was built for.
package main

//go:wasmimport extism:host/user lookup
func lookup(handle uint64) uint64

//go:wasmimport extism:host/env length
func length(handle uint64) uint64

//go:wasmimport extism:host/env load_u8
func load(at uint64) uint32

//go:wasmexport greet
func greet() int32 {
	found := lookup(block(input()))
	name := make([]byte, length(found))
	for i := range name {
		name[i] = byte(load(found + uint64(i)))
	}
	return output("Hello, " + string(name) + "!")
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
