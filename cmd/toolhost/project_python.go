package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/guest/python"
)

// inPython is the language Python.
type inPython struct{}

func (inPython) files(name string) map[string]string {
	return map[string]string{
		"tool.py": `from toolhost import ToolError, plugin, tool

plugin("` + name + `", version="1.0.0", description="Counts words.")


@tool(readonly=True, idempotent=True, examples=[{"args": {"text": "one two"}, "result": {"words": 2}}])
def count(text: str) -> dict[str, int]:
    """Counts the words of a text.

    Args:
        text: Text to count
    """
    if not text.strip():
        raise ToolError("the text has no words")
    return {"words": len(text.split())}
`,
		".gitignore": "__pycache__/\n*.wasm\n",
	}
}

func (inPython) main(dir string) string {
	file := filepath.Join(dir, "tool.py")
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return ""
	}
	return file
}

const wheelHint = "pip download --only-binary=:all: --platform any --dest wheels NAME gets a wheel of pure Python, if there is one"

func (inPython) compile(_ context.Context, dir string) ([]byte, error) {
	wasm, err := python.Plugin(os.DirFS(dir))
	if errors.Is(err, python.ErrImpure) {
		return nil, &hinted{err, wheelHint}
	}
	return wasm, err
}
