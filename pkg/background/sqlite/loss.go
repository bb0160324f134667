package sqlite

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/toolhost/toolhost/pkg/background"
)

// A watched file is one that must stay what it was when it was opened.
type watched struct {
	name string
	identity
}

// watchFiles notes which files the database is in. Windows lets nobody delete
// or rename a file that is open, so that there the look costs and finds nothing.
func (e *Engine) watchFiles() {
	for _, name := range []string{databaseName, databaseName + "-wal"} {
		if id, err := identify(e.path(name)); err == nil {
			e.files = append(e.files, watched{name, id})
		}
	}
}

// Err returns why nothing is stored any more: an error that matches
// [background.ErrStorageLost]. It is nil as long as the engine works.
func (e *Engine) Err() error {
	if err := e.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// look checks that the files of the database are those that were opened. If
// they are not, that is reported once, and the engine stores nothing any more.
func (e *Engine) look() error {
	if err := e.Err(); err != nil {
		return err
	}

	for _, w := range e.files {
		id, err := identify(e.path(w.name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !w.same(id) {
			return e.fail(w.name)
		}
	}
	return nil
}

func (e *Engine) fail(name string) error {
	err := fmt.Errorf("%w: %s; nothing is stored any more: put it back, and start again", background.ErrStorageLost, name)
	if e.failed.CompareAndSwap(nil, &err) {
		e.report(Problem{Kind: ProblemDatabase, Reason: err.Error()})
	}
	return e.Err()
}

// committed is called when a transaction is durable and before anybody is told.
func (e *Engine) committed() error {
	if err := e.look(); err != nil {
		return err
	}

	e.mark.commits++
	if err := e.mark.write(); err != nil && !e.unmarked {
		e.unmarked = true
		e.log.Warn("mark of the database not written: a loss of what was stored may go unnoticed", "error", err)
	}
	return nil
}
