// A plugin of Extism that counts vowels, as the one of Extism's documentation does.
package main

import (
	"fmt"
	"strings"
)

//go:wasmexport count_vowels
func countVowels() int32 {
	const vowels = "aeiouAEIOU"
	text, count := input(), 0
	for _, r := range text {
		if strings.ContainsRune(vowels, r) {
			count++
		}
	}
	return output(fmt.Sprintf(`{"count":%d,"total":%d,"vowels":%q}`, count, count, vowels))
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
