package sqlite

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// The file formats are those of https://www.sqlite.org/fileformat2.html.
const (
	pageSize    = 4096
	walHeader   = 32
	frameHeader = 24
)

// writeImage makes a database file of the pages of a damaged one and of its
// write-ahead log: one that can be read without the log, with a header that says
// what is there. It changes neither.
func writeImage(to, database, log string) error {
	if err := copyFile(database, to); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}

	err = applyLog(f, log)
	if err == nil {
		err = mendHeader(f)
	}

	return errors.Join(err, f.Close())
}

func applyLog(f *os.File, log string) error {
	var pages [][]byte // of the transaction that is read
	return frames(log, func(frame []byte, good bool) error {
		if good {
			pages = append(pages, bytes.Clone(frame))
		}
		if !good || binary.BigEndian.Uint32(frame[4:]) == 0 { // not the last one of a transaction
			return nil
		}
		for _, p := range pages {
			number := int64(binary.BigEndian.Uint32(p))
			if _, err := f.WriteAt(p[frameHeader:], (number-1)*pageSize); err != nil {
				return err
			}
		}
		pages = pages[:0]
		return nil
	})
}

// torn reports whether something is wrong in the middle of a write-ahead log:
// SQLite takes nothing of what is behind it.
func torn(log string) (bool, error) {
	var bad, behind bool
	err := frames(log, func(_ []byte, good bool) error {
		bad = bad || !good
		behind = behind || bad && good
		return nil
	})
	return behind, err
}

// frames calls each for the frames of a write-ahead log. Unlike SQLite it goes
// on behind one that is not good: the checksum of each begins with the one that
// is written in the frame before.
func frames(log string, each func(frame []byte, good bool) error) error {
	f, err := os.Open(log)
	if missingFile(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()

	r := bufio.NewReaderSize(f, 1<<20)
	head := make([]byte, walHeader)
	if _, err := io.ReadFull(r, head); err != nil || binary.BigEndian.Uint32(head[8:]) != pageSize {
		return nil // there is nothing in it
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[3]&1 != 0 {
		order = binary.BigEndian
	}
	s1, s2 := binary.BigEndian.Uint32(head[24:]), binary.BigEndian.Uint32(head[28:])
	sum := func(p []byte) {
		for ; len(p) >= 8; p = p[8:] {
			s1 += order.Uint32(p) + s2
			s2 += order.Uint32(p[4:]) + s1
		}
	}

	for frame := make([]byte, frameHeader+pageSize); ; {
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil // the end, or a frame that was cut off
		}
		sum(frame[:8])
		sum(frame[frameHeader:])
		w1, w2 := binary.BigEndian.Uint32(frame[16:]), binary.BigEndian.Uint32(frame[20:])
		good := s1 == w1 && s2 == w2 && binary.BigEndian.Uint32(frame) > 0 && bytes.Equal(frame[8:16], head[16:24])
		s1, s2 = w1, w2
		if err := each(frame, good); err != nil {
			return err
		}
	}
}

// maxPages is more than a database of ours has: 64 GiB.
const maxPages = 1 << 24

// mendHeader writes what the header of a database of ours has: the rest of it
// only says how the file came to be. A file that was cut off is made as long as
// it was, so that only what is gone cannot be read.
func mendHeader(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	head := make([]byte, 100)
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	pages := info.Size() / pageSize
	if was := int64(binary.BigEndian.Uint32(head[28:])); was <= maxPages {
		pages = max(pages, was)
	}
	if err := f.Truncate(pages * pageSize); err != nil {
		return err
	}

	clear(head)
	copy(head, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(head[16:], pageSize)
	head[18], head[19] = 1, 1 // read and written without a log
	head[21], head[22], head[23] = 64, 32, 32
	binary.BigEndian.PutUint32(head[24:], 1)
	binary.BigEndian.PutUint32(head[28:], uint32(pages))
	binary.BigEndian.PutUint32(head[44:], 4) // schema format
	binary.BigEndian.PutUint32(head[56:], 1) // UTF-8
	binary.BigEndian.PutUint32(head[92:], 1) // as of the change counter
	_, err = f.WriteAt(head, 0)
	return err
}
