package main

import (
	"context"
	"errors"
	"os"

	"github.com/toolhost/toolhost/guest/python"
)

// inPython is the language Python.
type inPython struct{}

func (inPython) files(name string) map[string]string {
	return project("python", "%NAME%", name)
}

func (inPython) main(dir string) string { return sourceIn(dir, "tool.py") }

const wheelHint = "pip download --only-binary=:all: --platform any --dest wheels NAME gets a wheel of pure Python, if there is one"

func (inPython) compile(_ context.Context, dir string) ([]byte, error) {
	wasm, err := python.Plugin(os.DirFS(dir))
	if errors.Is(err, python.ErrImpure) {
		return nil, &hintError{err, wheelHint}
	}
	return wasm, err
}
