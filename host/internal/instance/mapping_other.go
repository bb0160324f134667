//go:build !linux || !(amd64 || arm64)

package instance

import (
	"errors"
	"os"
)

// On other systems memories lie on Go's heap and are reset by copying.

var errNoMapping = errors.New("memory is not mapped on this system")

func memoryFile([]byte, uint64, uint64) (*os.File, []byte, error) { return nil, nil, errNoMapping }

func reserve(uint64) ([]byte, error) { return nil, errNoMapping }

func unreserve([]byte) {}

func overlay([]byte, *os.File) error { return errNoMapping }

func discard([]byte) error { return errNoMapping }
