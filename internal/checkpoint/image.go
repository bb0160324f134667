package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

const imageMagic = "thim\x01"

// An Image is the memory that a checkpoint was compared with: Bytes at the offset At, and zeros
// everywhere else.
type Image struct {
	Bytes []byte
	At    uint64 // offset of Bytes in the memory
}

// EncodeImage returns an image as bytes, for checkpoints that outlive it. They consist of a
// magic number and a zstd frame with a checksum. The frame contains the offset as a uvarint,
// and then the content.
func EncodeImage(i Image) []byte {
	body := append(binary.AppendUvarint(nil, i.At), i.Bytes...)
	return encoder.EncodeAll(body, []byte(imageMagic))
}

// DecodeImage reads an image, which must have the digest want. most is the maximum size of the
// image's memory, in bytes. The error matches ErrTooLarge, or ErrDamaged, even if only the
// digest differs.
func DecodeImage(data []byte, want Digest, most uint64) (i Image, err error) {
	body, err := unpack(data, imageMagic, most+binary.MaxVarintLen64)
	if err != nil {
		return i, err
	}
	at, n := binary.Uvarint(body)
	if n <= 0 || at > most || uint64(len(body)-n) > most-at {
		return i, fmt.Errorf("%w: its image is not within a memory of %d bytes", ErrDamaged, most)
	}
	i = Image{Bytes: body[n:], At: at}
	if DigestImage(i.Bytes, i.At) != want {
		return Image{}, fmt.Errorf("%w: its image is another one", ErrDamaged)
	}
	return i, nil
}

// Apply overwrites memory with the image. It reports whether the image fits into it.
func (i Image) Apply(memory []byte) bool {
	if i.At > uint64(len(memory)) || uint64(len(i.Bytes)) > uint64(len(memory))-i.At {
		return false
	}
	clear(memory)
	copy(memory[i.At:], i.Bytes)
	return true
}

// unpack decompresses what pack has made, up to most bytes.
func unpack(data []byte, magic string, most uint64) ([]byte, error) {
	frame, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, fmt.Errorf("%w, or another version made it", ErrDamaged)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer d.Close()
	body, err := d.DecodeAll(frame, nil)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, most)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return body, nil
}
