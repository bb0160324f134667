package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/png" // the format of the photo
	"strings"

	"github.com/toolhost/toolhost/bench/internal/engine"
)

// start runs a command; what it prints is its result.
func start(in *engine.Instance, _ []byte) ([]byte, error) {
	if _, err := in.Call("_start"); err != nil {
		return nil, err
	}
	return in.Stdout()
}

func noHost([]byte) engine.Host { return engine.Host{} }

func inputAsStdin(args ...string) func([]byte) engine.Host {
	return func(input []byte) engine.Host { return engine.Host{Args: args, Stdin: input} }
}

func inputAsArgument(args ...string) func([]byte) engine.Host {
	return func(input []byte) engine.Host {
		return engine.Host{Args: append(args[:len(args):len(args)], string(input))}
	}
}

// pluginHost is as much of toolhost_v1 as a call without arguments needs.
func pluginHost(script []byte) engine.Host {
	fields := map[uint64][]byte{0: []byte("{}"), 1: []byte("work"), 2: []byte(`{"call_id":"1","attempt":1}`), 4: script}
	return engine.Host{Functions: map[string]engine.Function{
		"toolhost_v1.read": func(in *engine.Instance, args []uint64) uint64 {
			field, ok := fields[args[0]]
			if !ok {
				return 0xffff_ffff // -1: absent
			}
			copy(in.Memory()[args[1]:][:args[2]], field)
			return uint64(len(field))
		},
		"toolhost_v1.write": func(in *engine.Instance, args []uint64) uint64 {
			if args[0] <= 1 { // the result, or an error
				in.Output = append(in.Output, in.Memory()[args[1]:][:args[2]]...)
			}
			return 0
		},
	}}
}

// invoke calls the tool of a plugin.
func invoke(in *engine.Instance, _ []byte) ([]byte, error) {
	code, err := in.Call("toolhost_invoke")
	if err == nil && code != 0 {
		err = fmt.Errorf("code %d: %s", code, in.Output)
	}
	return in.Output, err
}

// calls makes calls of a library in C until one fails.
type calls struct {
	in     *engine.Instance
	malloc string // name of the function that allocates memory
	err    error
}

func (c *calls) call(name string, args ...uint64) uint64 {
	if c.err != nil {
		return 0
	}
	result, err := c.in.Call(name, args...)
	if err != nil {
		c.err = fmt.Errorf("%s: %w", name, err)
	}
	return result
}

// put puts data with a zero byte after it into the memory, and returns the pointer.
func (c *calls) put(data []byte) uint64 {
	p := c.call(c.malloc, uint64(len(data)+1))
	if c.err == nil {
		clear(c.in.Memory()[p:][copy(c.in.Memory()[p:], data):][:1])
	}
	return p
}

func (c *calls) bytes(p, n uint64) []byte {
	if c.err != nil {
		return nil
	}
	return bytes.Clone(c.in.Memory()[uint32(p):][:n])
}

func (c *calls) u64(p uint64) uint64 {
	if b := c.bytes(p, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *calls) u32(p uint64) uint64 { return c.u64(p) & 0xffff_ffff }

func (c *calls) text(p uint64) string {
	if c.err != nil || p == 0 {
		return ""
	}
	text, _, _ := bytes.Cut(c.in.Memory()[uint32(p):], []byte{0})
	return string(text)
}

// evaluate evaluates a script as the Go module qjs does.
func evaluate(in *engine.Instance, script []byte) ([]byte, error) {
	c := &calls{in: in, malloc: "malloc"}
	ctx := c.call("QJS_GetContext", c.call("New_QJS", 0, 0, 0, 0))
	options := c.call("QJS_CreateEvalOption", c.put(script), 0, 0, c.put([]byte("script.js")), 0)
	value := c.call("QJS_Eval", ctx, options)
	result := c.u64(c.call("QJS_ToCString", ctx, value))
	return []byte(c.text(result >> 32)), c.err
}

// sqliteHost has what a database in memory needs: a file system that exists.
func sqliteHost([]byte) engine.Host {
	return engine.Host{Functions: map[string]engine.Function{
		"env.go_vfs_find": func(*engine.Instance, []uint64) uint64 { return 1 },
	}}
}

// query executes statements in a database in memory; the value that the last one selects is the result.
func query(in *engine.Instance, script []byte) ([]byte, error) {
	const readWriteCreate = 6
	c := &calls{in: in, malloc: "sqlite3_malloc64"}
	pointer := c.put(make([]byte, 8))
	c.call("sqlite3_open_v2", c.put([]byte(":memory:")), pointer, readWriteCreate, 0)
	db := c.u32(pointer)
	i := strings.LastIndex(strings.TrimRight(string(script), ";\n"), ";\n") + 1
	code := c.call("sqlite3_exec", db, c.put(script[:i]), 0, 0, 0)
	if c.err == nil && code != 0 {
		return nil, fmt.Errorf("code %d: %s", code, c.text(c.call("sqlite3_errmsg", db)))
	}

	c.call("sqlite3_prepare_v3", db, c.put(script[i:]), uint64(len(script)-i), 0, pointer, 0)
	statement := c.u32(pointer)
	c.call("sqlite3_step", statement)
	return []byte(c.text(c.call("sqlite3_column_text", statement, 0))), c.err
}

// webpOptions are colorspace, quality, method, lossless and exact; jpegxlOptions are quality and effort.
var webpOptions, jpegxlOptions = []uint64{0, 75, 4, 0, 0}, []uint64{75, 7}

// encode encodes a square of the photo as the Go modules of codecs do.
func encode(size int, options []uint64) func(*engine.Instance, []byte) ([]byte, error) {
	return func(in *engine.Instance, photo []byte) ([]byte, error) {
		decoded, _, err := image.Decode(bytes.NewReader(photo))
		if err != nil {
			return nil, err
		}
		square := image.NewNRGBA(image.Rect(0, 0, size, size))
		draw.Draw(square, square.Bounds(), decoded, image.Pt(100, 100), draw.Src)

		c := &calls{in: in, malloc: "malloc"}
		length := c.put(make([]byte, 8))
		args := append([]uint64{c.put(square.Pix), uint64(size), uint64(size), length}, options...)
		p := c.call("encode", args...)
		return c.bytes(p, c.u64(length)), c.err
	}
}

// decodeHEIC decodes a photo as the Go module heic does; the digest of its pixels is the result.
func decodeHEIC(in *engine.Instance, photo []byte) ([]byte, error) {
	c := &calls{in: in, malloc: "malloc"}
	about := c.put(make([]byte, 5*4)) // width, height, color space, chroma, whether premultiplied
	decode := func(headerOnly, pixels uint64) {
		if c.call("decode", c.put(photo), uint64(len(photo)), headerOnly, about, about+4, about+8, about+12, about+16, pixels) == 0 && c.err == nil {
			c.err = errors.New("not decoded")
		}
	}
	decode(1, 0)
	size := 4 * (c.u32(about) + 64) * (c.u32(about+4) + 64) // at most four bytes a pixel, and aligned rows
	pixels := c.put(make([]byte, size))
	decode(0, pixels)
	return fmt.Append(nil, size, sha256.Sum256(c.bytes(pixels, size))), c.err
}
