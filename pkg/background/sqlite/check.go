package sqlite

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// The checks of SQLite: quickCheck reads every page, and integrityCheck also compares the
// indexes with the tables. See https://www.sqlite.org/pragma.html#pragma_quick_check.
const (
	quickCheck     = "quick_check(1)"
	integrityCheck = "integrity_check(1)"
)

// mapped is the number of bytes of a file that a check maps into memory: SQLite's limit. Reading
// them page by page takes more than twice as long.
const mapped = 2 << 30

// inspectFile checks a database file, and returns its mark. It changes nothing.
func inspectFile(path, check string) (found mark, err error) {
	c, err := connect(path, "ro")
	if err != nil {
		return found, err
	}

	err = faultless(path, func() error {
		found, err = inspectWith(c, path, check)
		return errors.Join(err, c.close())
	})
	return found, damaged(path, err)
}

func inspectWith(c *conn, path, check string) (found mark, err error) {
	version, err := versionOf(c, path, len(migrations))
	if err != nil || version == 0 {
		return found, err
	}
	if err := c.script(fmt.Sprintf("PRAGMA mmap_size = %d", mapped)); err != nil {
		return found, err
	}

	result, err := c.one("PRAGMA " + check)
	if err != nil {
		return found, err
	}
	if damage := strings.Join(strings.Fields(fmt.Sprint(result[0])), " "); damage != "ok" {
		return found, fmt.Errorf("%w: %s: %s", ErrDamaged, path, damage)
	}
	return markOf(c)
}

// faultless calls f, which reads a file that is mapped into memory. If the disk fails, such a
// read faults. Then the error matches ErrDamaged, and everything that f has opened stays open,
// because it may be locked.
func faultless(path string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		value := recover()
		if fault, ok := value.(interface{ Addr() uintptr }); ok {
			err = fmt.Errorf("%w: %s: a part of it cannot be read: %v", ErrDamaged, path, fault)
		} else if value != nil {
			panic(value)
		}
	}()
	return f()
}

// damaged adds the file name to an error that reports damage.
func damaged(path string, err error) error {
	if damagedFile(err) && !errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return err
}
