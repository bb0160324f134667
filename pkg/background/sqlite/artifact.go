package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/pkg/background"
)

// retries is how often a log is looked at again when a part of it went while
// it was read.
const retries = 10

// Tail implements [background.Engine]. All of a log that was removed counts as
// dropped.
func (e *Engine) Tail(ctx context.Context, id string, offset int64, max int) (background.Chunk, error) {
	if err := e.enter(); err != nil {
		return background.Chunk{}, err
	}
	defer e.calls.Done()
	var chunk background.Chunk
	err := e.withLog(ctx, id, func(lay layout) (err error) {
		chunk, err = lay.read(offset, max)
		return err
	})
	return chunk, err
}

// withLog calls read with where the log of a run is. It does so again when
// that changed while it was read.
func (e *Engine) withLog(ctx context.Context, id string, read func(layout) error) error {
	for try := 1; ; try++ {
		r, err := e.load(ctx, id, load)
		if err != nil {
			return err
		}
		lay, err := e.layout(r)
		if err == nil {
			err = read(lay)
		}
		if err == nil {
			return nil
		}
		if try == retries || ctx.Err() != nil {
			return fmt.Errorf("reading the log of %s: %w", id, err)
		}
	}
}

// layout returns where the log of a run is.
func (e *Engine) layout(r row) (layout, error) {
	switch {
	case r.Log == nil:
		log, err := e.logOf(r.Run)
		if err != nil {
			return layout{}, err
		}
		return log.layout()
	case !r.Log.Whole:
		// The record says that it could not be written: what there is, is shown.
		if log, err := e.findLog(r.Run); err == nil && log.end > 0 {
			return log.layout()
		}
	default:
		dir := e.path(runsFolder, r.Folder())
		if e.checkWhole(r, dir) == nil {
			return r.Log.layout(dir), nil
		}
	}
	return layout{tail: r.Log.End, end: r.Log.End}, nil
}

// checkWhole looks whether output.log of a terminal run is what the record
// says. One that is not is set aside. That it is missing is no damage: it was
// removed to make room, or its run was.
func (e *Engine) checkWhole(r row, dir string) error {
	path := filepath.Join(dir, background.OutputLog)
	size, err := fileSize(path)
	if err == nil && size == r.Log.size() {
		return nil
	}
	// The process may have died before it put the file in its place.
	if n, newErr := fileSize(filepath.Join(dir, outputNew)); newErr == nil && n == r.Log.size() {
		if err := publish(dir); err == nil {
			return nil
		}
	}
	// Another call may have put it in its place, or removed it, in the meantime.
	if size, err = fileSize(path); err == nil && size == r.Log.size() {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		err = fmt.Errorf("output.log has %d bytes, its record says %d", size, r.Log.size())
	}
	e.setAside(Problem{Kind: ProblemLog, ID: r.ID, Reason: err.Error()}, path, r.Folder()+"."+background.OutputLog)
	return err
}

func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a file", filepath.Base(path))
	}
	return info.Size(), nil
}

// Open implements [background.Engine]. What [background.ResultJSON] holds
// comes from the record, so that it is there even if the file is not.
func (e *Engine) Open(ctx context.Context, id, name string) (background.Artifact, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.calls.Done()
	r, err := e.load(ctx, id, loadFull)
	if err != nil {
		return nil, err
	}
	if r.Status.Terminal() {
		switch name {
		case background.ResultJSON:
			data, err := r.ResultFile()
			return memory{bytes.NewReader(data)}, err
		case background.OutputLog:
			return e.openLog(ctx, r)
		}
	}
	return nil, fmt.Errorf("%w: %s of %s", background.ErrNotFound, name, id)
}

// openLog opens output.log, or makes one in memory if there is no whole file.
func (e *Engine) openLog(ctx context.Context, r row) (background.Artifact, error) {
	dir := e.path(runsFolder, r.Folder())
	if r.Log.Whole && e.checkWhole(r, dir) == nil {
		if f, err := os.Open(filepath.Join(dir, background.OutputLog)); err == nil {
			return f, nil
		}
	}
	var out background.Output
	err := e.withLog(ctx, r.ID, func(lay layout) (err error) {
		if out.Head, err = lay.bytes(0, lay.head); err == nil {
			out.Tail, err = lay.bytes(lay.tail, lay.end)
		}
		out.Omitted = lay.tail - lay.head
		return err
	})
	if err != nil {
		return nil, err
	}
	return memory{bytes.NewReader([]byte(out.String()))}, nil
}

// memory is an artifact that is not in a file.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }
