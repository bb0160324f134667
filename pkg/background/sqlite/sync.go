package sqlite

import (
	"errors"
	"os"
	"runtime"
)

// syncDir makes the names in a folder durable. Windows does so itself.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
