package main

import (
	"context"
	"errors"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/bundle"
	"github.com/toolhost/toolhost/guest/js"
)

// javascript is the language JavaScript or TypeScript, depending on the file
// name ending.
type javascript struct{ ext string }

// typesFile is the name of the file that declares the module "toolhost" for
// editors.
const typesFile = "toolhost.d.ts"

func (l javascript) files(name string) map[string]string {
	result := ""
	if l.ext == ".ts" {
		result = ": Promise<{ words: number }>"
	}
	files := project("javascript", "%NAME%", name, "%RESULT%", result)
	files["tool"+l.ext] = files["tool"]
	delete(files, "tool")
	files[typesFile] = string(js.Types)
	return files
}

func (l javascript) main(dir string) string { return sourceIn(dir, "tool"+l.ext) }

func (l javascript) compile(_ context.Context, dir string) ([]byte, error) {
	module, err := bundle.Module(l.main(dir))
	if _, ofSource := errors.AsType[*bundle.Error](err); ofSource {
		return nil, &hintError{err, "docs/javascript.md says what tools find and what they do not"}
	}
	if err != nil {
		return nil, err
	}
	return js.Plugin(module), nil
}
