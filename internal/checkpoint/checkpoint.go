// Package checkpoint encodes a waiting guest: the difference between its memory and its
// image, its globals, and the host's data about it. A waiting guest has no other state,
// so it can continue in another instance, in another process, and on another kind of
// processor.
//
// An encoded checkpoint is a magic number and a zstd frame with its checksum. The frame
// has these fields, with integers in little endian or as varints (see encoding/binary):
//
//	the digest of the plugin's file    32 bytes
//	the digest of the image            32 bytes
//	the size of the memory in bytes    uvarint
//	the globals                        uvarint, and 8 bytes each
//	what the host has added            uvarint, and that many bytes
//	the runs of blocks                 uvarint, and for each: uvarint blocks that are as in the image, uvarint blocks that are not
//	the blocks of all runs             256 bytes each
//
// Blocks of 256 bytes make small checkpoints half as large as pages do, and large ones no
// larger.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
)

const (
	block    = 256
	pageSize = 64 << 10
	magic    = "thcp\x01"
	// MaxGlobals is the maximum number of mutable globals of a guest, and MaxHost is the
	// maximum size of the data that the host adds, in bytes.
	MaxGlobals = 100_000
	MaxHost    = 32 << 20
)

// The reasons why bytes are not a usable checkpoint.
var (
	ErrDamaged  = errors.New("the checkpoint is damaged")
	ErrTooLarge = errors.New("the checkpoint is too large")
)

// Digest is a SHA-256 digest.
type Digest = [sha256.Size]byte

// Checkpoint is the state of a waiting guest. The zero Checkpoint has an empty memory.
type Checkpoint struct {
	Plugin  Digest // digest of the plugin's file
	Image   Digest // digest of the image that the memory is compared with: see [DigestImage]
	Size    uint64 // size of the memory in bytes: whole pages of 64 KiB
	Globals []uint64
	Host    []byte // data that the host adds
	changed []run
}

// run is a part of the memory that is not as in the image. It begins at a whole block.
type run struct {
	at    uint64
	bytes []byte // whole blocks
}

// DigestImage returns the digest of an image: data at the offset at of a memory that is
// otherwise zero. Zeros before and after the data do not change the digest.
func DigestImage(data []byte, at uint64) (d Digest) {
	trimmed := bytes.TrimLeft(data, "\x00")
	at += uint64(len(data) - len(trimmed))
	trimmed = bytes.TrimRight(trimmed, "\x00")
	if len(trimmed) == 0 {
		at = 0
	}

	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, at))
	h.Write(trimmed)
	h.Sum(d[:0])
	return d
}

// Pages lists the pages of a memory that may differ from its image. All other pages are the
// same as in the image.
type Pages struct {
	At   []uint64 // offsets of the pages in the memory, in ascending order
	Size uint64   // size of each page in bytes, a multiple of 256
}

// Compare records how a memory differs from its image, which consists of image at the offset at
// and zeros everywhere else. The checkpoint shares no bytes with the memory. If pages is not
// nil, Compare reads only those pages.
func (c *Checkpoint) Compare(memory, image []byte, at uint64, pages *Pages) {
	c.Size, c.changed = uint64(len(memory)), nil
	base := blocks{image, at}
	if pages == nil {
		c.compare(memory, 0, c.Size, base)
		return
	}
	for _, from := range pages.At {
		c.compare(memory, from, min(from+pages.Size, c.Size), base)
	}
}

// compare is like Compare, for a part of the memory.
func (c *Checkpoint) compare(memory []byte, from, to uint64, base blocks) {
	zero := [block]byte{}
	for ; from < to; from += block {
		now := memory[from:][:block]
		if was, ok := base.at(from, zero[:]); ok && bytes.Equal(now, was) || !ok && base.same(from, now) {
			continue
		}
		if n := len(c.changed); n > 0 && c.changed[n-1].at+uint64(len(c.changed[n-1].bytes)) == from {
			c.changed[n-1].bytes = append(c.changed[n-1].bytes, now...)
		} else {
			c.changed = append(c.changed, run{from, slices.Clone(now)})
		}
	}
}

// blocks holds the blocks of an image.
type blocks struct {
	bytes []byte
	from  uint64
}

// at returns the block at an offset: zero outside of the image. It reports false for a
// block that is only partly in the image.
func (b blocks) at(at uint64, zero []byte) ([]byte, bool) {
	end := b.from + uint64(len(b.bytes))
	switch {
	case at >= b.from && at+block <= end:
		return b.bytes[at-b.from:][:block], true
	case at+block <= b.from || at >= end:
		return zero, true
	}
	return nil, false
}

// same compares a block that is partly in the image.
func (b blocks) same(at uint64, now []byte) bool {
	for i, v := range now {
		var was byte
		if p := at + uint64(i); p >= b.from && p-b.from < uint64(len(b.bytes)) {
			was = b.bytes[p-b.from]
		}
		if v != was {
			return false
		}
	}
	return true
}

// Apply restores the memory of the checkpoint. Before that, memory must equal the image and
// have Size bytes.
func (c *Checkpoint) Apply(memory []byte) {
	for _, r := range c.changed {
		copy(memory[r.at:], r.bytes)
	}
}

// Changed returns how many bytes of the memory differ from the image, counted in whole blocks.
func (c *Checkpoint) Changed() (n int) {
	for _, r := range c.changed {
		n += len(r.bytes)
	}
	return n
}

// encoder encodes as many at a time as there are processors. It is made here, and used once,
// because it has a channel: one that is made in the bubble of a test is closed to others.
var encoder = func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err) // the options are constant
	}
	e.EncodeAll([]byte{0}, nil)
	return e
}()

// pack compresses a body.
func pack(body []byte) []byte {
	return encoder.EncodeAll(body, append(make([]byte, 0, len(magic)+len(body)/2+64), magic...))
}

// Encode returns the checkpoint as bytes. Within one version of this package, equal checkpoints
// are encoded as equal bytes. Decode reads the bytes of all versions. If MaxGlobals or MaxHost
// is exceeded, the error matches ErrTooLarge.
func (c *Checkpoint) Encode() ([]byte, error) {
	if len(c.Globals) > MaxGlobals || len(c.Host) > MaxHost {
		return nil, fmt.Errorf("%w: it has %d globals, and %d bytes of the host", ErrTooLarge, len(c.Globals), len(c.Host))
	}
	body := make([]byte, 0, 128+8*len(c.Globals)+len(c.Host)+c.Changed()+8*len(c.changed))
	body = append(append(body, c.Plugin[:]...), c.Image[:]...)
	body = binary.AppendUvarint(body, c.Size)
	body = binary.AppendUvarint(body, uint64(len(c.Globals)))
	for _, g := range c.Globals {
		body = binary.LittleEndian.AppendUint64(body, g)
	}
	body = append(binary.AppendUvarint(body, uint64(len(c.Host))), c.Host...)

	body = binary.AppendUvarint(body, uint64(len(c.changed)))
	next := uint64(0)
	for _, r := range c.changed {
		body = binary.AppendUvarint(body, (r.at-next)/block)
		body = binary.AppendUvarint(body, uint64(len(r.bytes)/block))
		next = r.at + uint64(len(r.bytes))
	}
	for _, r := range c.changed {
		body = append(body, r.bytes...)
	}
	return pack(body), nil
}

// Decode reads a checkpoint, where most is the maximum size of its memory, in bytes. Even for
// hostile data it uses at most about twice that much memory, plus twice MaxHost. The error
// matches ErrDamaged or ErrTooLarge.
func Decode(data []byte, most uint64) (*Checkpoint, error) {
	body, err := unpack(data, magic, most+most/block*20+MaxHost+8*MaxGlobals+4096)
	if err != nil {
		return nil, err
	}
	return parse(body, most)
}

// parse reads the body of a checkpoint.
func parse(body []byte, most uint64) (*Checkpoint, error) {
	r := reader{rest: body}
	c := &Checkpoint{}
	copy(c.Plugin[:], r.take(uint64(len(c.Plugin))))
	copy(c.Image[:], r.take(uint64(len(c.Image))))
	c.Size = r.number(math.MaxUint64)
	if c.Size > most {
		return nil, fmt.Errorf("%w: its memory has %d bytes, and at most %d are allowed", ErrTooLarge, c.Size, most)
	}
	if c.Size%pageSize != 0 {
		return nil, fmt.Errorf("%w: its memory has %d bytes, which are no whole pages", ErrDamaged, c.Size)
	}

	for n := r.number(MaxGlobals); n > 0 && !r.failed; n-- {
		if g := r.take(8); g != nil {
			c.Globals = append(c.Globals, binary.LittleEndian.Uint64(g))
		}
	}
	c.Host = slices.Clone(r.take(r.number(MaxHost)))

	at, lengths := uint64(0), []uint64(nil)
	for n := r.number(c.Size / block); n > 0 && !r.failed; n-- {
		at += r.number((c.Size-at)/block) * block
		length := r.number((c.Size-at)/block) * block
		c.changed, lengths = append(c.changed, run{at: at}), append(lengths, length)
		at += length
	}
	for i, n := range lengths {
		c.changed[i].bytes = r.take(n)
	}
	if r.failed || len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: its parts do not fit together", ErrDamaged)
	}
	return c, nil
}

// reader reads the parts of a body. Once it has failed it returns nothing.
type reader struct {
	rest   []byte
	failed bool
}

// take returns the next n bytes.
func (r *reader) take(n uint64) []byte {
	if r.failed = r.failed || n > uint64(len(r.rest)); r.failed {
		return nil
	}
	part := r.rest[:n:n]
	r.rest = r.rest[n:]
	return part
}

// number returns the next number, which may be up to most.
func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.failed = r.failed || n <= 0 || v > most; r.failed {
		return 0
	}
	r.rest = r.rest[n:]
	return v
}
