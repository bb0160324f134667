package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/toolhost/toolhost/pkg/background"
)

// openDatabase returns the connection that writes, to a database that is whole.
// It compares what is there with the mark the last process left, reports what
// is lost, and saves what can still be read.
func (e *Engine) openDatabase() (*conn, error) {
	left, known, err := readMark(e.path(markName))
	if err != nil {
		return nil, err
	}

	c, told, err := e.openWhole(left, known)
	if err != nil {
		return nil, err
	}
	now, err := markOf(c)
	if err == nil && known && !told {
		err = e.compare(c, left, now)
	}
	if err == nil {
		now.commits = max(now.commits, left.commits) // of a database that was salvaged, or went back: the next loss counts from here
		err = c.run(`UPDATE meta SET value = ? WHERE name = 'commits'`, now.commits)
	}
	if err == nil {
		e.mark, err = newMarkFile(e.path(markName), now)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}

	entries, _ := os.ReadDir(e.path(quarantineFolder))
	e.aside.Store(int64(len(entries)))
	e.watchFiles()
	return c, nil
}

// openWhole opens the database. One that is missing or damaged is replaced by a
// new one; told says that this was reported.
func (e *Engine) openWhole(left mark, known bool) (c *conn, told bool, err error) {
	if aside, err := e.unfinishedSalvage(); err != nil || aside != "" {
		if err == nil {
			c, err = e.replace(aside, "an earlier start was cut short while it read what is left of a damaged database")
		}
		return c, true, err
	}

	path := e.path(databaseName)
	if why := e.missing(left, known); why != "" {
		aside, err := e.setDatabaseAside(asideName("lost"))
		if err != nil {
			return nil, false, err
		}
		e.report(Problem{Kind: ProblemDatabase, Moved: aside, Reason: why})
		c, err = openFile(path, false)
		return c, true, err
	}

	if known {
		if err := e.keepTorn(); err != nil {
			return nil, false, fmt.Errorf("keeping a torn write-ahead log: %w", err)
		}
	}
	c, err = openFile(path, e.suspected(path))
	if !damagedFile(err) {
		return c, false, err
	}
	damage := err
	aside := asideName("corrupt")
	if err := e.beginSalvage(aside); err != nil {
		return nil, false, fmt.Errorf("setting the damaged database aside: %w", err)
	}
	if _, err := e.setDatabaseAside(aside); err != nil {
		return nil, false, err
	}
	if c, err = e.replace(aside, damage.Error()); err != nil {
		return nil, false, err
	}
	return c, true, os.RemoveAll(path + suspectSuffix)
}

// salvagingName is a file that names the database that was set aside and is not
// read yet. It is there until all that can be read of that is in the new one: a
// start that is cut short is done again by the next.
const salvagingName = databaseName + ".salvaging"

func (e *Engine) beginSalvage(aside string) error {
	return errors.Join(writeFile(e.path(salvagingName), strings.NewReader(aside), true), syncDir(e.dir))
}

// unfinishedSalvage returns the name of a database that an earlier start set
// aside and did not finish reading, after it has removed what that start made;
// "" if there is none.
func (e *Engine) unfinishedSalvage() (aside string, err error) {
	name, err := os.ReadFile(e.path(salvagingName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	aside = filepath.Base(string(name))
	if _, err := os.Stat(e.path(aside)); err != nil {
		return "", os.Remove(e.path(salvagingName)) // it was not set aside yet
	}

	// Without a new database its log is still that of the damaged one.
	if _, err := os.Stat(e.path(databaseName)); errors.Is(err, fs.ErrNotExist) {
		_, err = e.setDatabaseAside(aside)
		return aside, err
	}
	for _, suffix := range databaseSuffixes {
		if err := os.RemoveAll(e.path(databaseName + suffix)); err != nil {
			return "", err
		}
	}
	return aside, nil
}

// replace makes a new database of what can be read of one that was set aside.
func (e *Engine) replace(aside, reason string) (*conn, error) {
	c, err := openFile(e.path(databaseName), false)
	if err != nil {
		return nil, err
	}
	said, err := e.salvageAside(c, aside)
	if err == nil {
		err = os.Remove(e.path(salvagingName))
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	e.report(Problem{Kind: ProblemDatabase, Moved: aside, Reason: reason + said})
	return c, nil
}

// salvageAside reads what can be read of a database that was set aside. How far
// that was cannot be known.
func (e *Engine) salvageAside(c *conn, aside string) (said string, err error) {
	_ = os.Remove(e.path(tornName)) // it is among what was set aside
	if err := writeImage(e.path(imageName), e.path(aside), e.path(aside+"-wal")); errors.Is(err, syscall.ENOSPC) {
		return "", fmt.Errorf("reading a damaged database needs as much room again: %w", err)
	} else if err != nil {
		return "; nothing was read from it: " + err.Error(), nil
	}
	doubted := ""
	said = e.salvage(c)
	if doubted, err = doubt(c); err != nil {
		return "", err
	}
	return "; " + said + doubted, nil
}

// databaseSuffixes are those of the files of a database.
var databaseSuffixes = []string{"", "-wal", "-shm"}

// asideName is what a database is renamed to that is set aside.
func asideName(why string) string {
	return fmt.Sprintf("%s.%s-%s", databaseName, why, timestamp())
}

// setDatabaseAside renames the files of the database, and returns the new name
// of the first one; "" if there was none.
func (e *Engine) setDatabaseAside(name string) (aside string, err error) {
	for _, suffix := range databaseSuffixes {
		err := os.Rename(e.path(databaseName+suffix), e.path(name+suffix))
		if err == nil {
			aside = name
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("setting the damaged database aside: %w", err)
		}
	}
	return aside, nil
}

// missing says why there is no database where there has to be one; "" if there
// is one, or none was ever made.
func (e *Engine) missing(left mark, known bool) string {
	info, err := os.Stat(e.path(databaseName))
	state := "is empty"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		state = "is missing"
	case err != nil || info.Size() > 0:
		return ""
	}

	folders, _ := os.ReadDir(e.path(runsFolder))
	switch {
	case known:
		return fmt.Sprintf("%s %s: all of its %d transactions are lost", databaseName, state, left.commits)
	case len(folders) > 0:
		return fmt.Sprintf("%s %s, and there are %d folders of runs", databaseName, state, len(folders))
	}
	return ""
}

// tornName is the name of the copy of a torn write-ahead log, while it is not
// known yet whether anything is lost by it.
const tornName = databaseName + "-wal.torn"

// keepTorn makes a copy of a write-ahead log that is torn, and an image of the
// database with it, before SQLite throws away what is behind the damage.
func (e *Engine) keepTorn() error {
	log := e.path(databaseName + "-wal")
	if torn, err := torn(log); err != nil || !torn {
		return err
	}
	if err := os.Remove(e.path(tornName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := copyFile(log, e.path(tornName)); err != nil {
		return err
	}
	return writeImage(e.path(imageName), e.path(databaseName), log)
}

// compare reports that the database is not the one, or not as far, as the mark
// says, and reads what it can of what a torn write-ahead log had. A log that was
// torn in what nobody was told of is no loss: the machine stopped there.
func (e *Engine) compare(c *conn, left, now mark) error {
	p := Problem{Kind: ProblemDatabase}
	switch {
	case now.store != left.store:
		p.Reason = databaseName + " is another database than the one that was in use: what that had is lost"
	case now.commits < left.commits:
		p.Reason = fmt.Sprintf("%s went back in time: it has %d of %d transactions", databaseName, now.commits, left.commits)
	default:
		return errors.Join(os.RemoveAll(e.path(tornName)), os.RemoveAll(e.path(imageName)))
	}

	if moved := tornName + "-" + timestamp(); os.Rename(e.path(tornName), e.path(moved)) == nil {
		p.Moved = moved
		p.Reason += "; " + e.salvage(c)
	}
	said, err := doubt(c)
	p.Reason += said
	e.report(p)
	return err
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Sync(), dst.Close())
}

// doubt marks the runs that are queued in a database that is not as far as it
// was: they may have been started since. They are taken for running ones whose
// host went down, so that those whose tool may not be run twice are not.
func doubt(c *conn) (said string, err error) {
	var queued []row
	err = c.query(func(found []driver.Value) error {
		id, _ := found[1].(string)
		r, err := decode(found[0].(int64), id, found[2])
		if err == nil && r.Status == background.StatusQueued && r.Attempt == 0 {
			queued = append(queued, r)
		}
		return nil
	}, selectActive)
	for _, r := range queued {
		if err == nil {
			r.Status, r.Attempt = background.StatusRunning, 1
			err = r.update(c)
		}
	}
	if err != nil || len(queued) == 0 {
		return "", err
	}
	return fmt.Sprintf("; %d queued runs may have been started since: they are taken for interrupted ones", len(queued)), nil
}
