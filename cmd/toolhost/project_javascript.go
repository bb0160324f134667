package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/cmd/toolhost/internal/bundle"
	"github.com/toolhost/toolhost/guest/js"
)

// javascript is JavaScript or TypeScript, by the ending of its files.
type javascript struct{ ext string }

// typesFile declares the module "toolhost" for editors.
const typesFile = "toolhost.d.ts"

func (l javascript) files(name string) map[string]string {
	result := ""
	if l.ext == ".ts" {
		result = ": Promise<{ words: number }>"
	}
	return map[string]string{
		"tool" + l.ext: `import { tool, ToolError } from "toolhost";

export const plugin = { name: "` + name + `", version: "1.0.0", description: "Counts words." };

export const count = tool({
  description: "Counts the words of a text.",
  input: { text: { type: "string", description: "Text to count" } },
  readonly: true,
  idempotent: true,
  examples: [{ args: { text: "one two" }, result: { words: 2 } }],
}, async ({ text }, call)` + result + ` => {
  if (text.trim() === "") throw new ToolError("the text has no words");
  return { words: text.trim().split(/\s+/).length };
});
`,
		typesFile:       string(js.Types),
		"package.json":  "{\n  \"name\": \"" + name + "\",\n  \"private\": true,\n  \"type\": \"module\"\n}\n",
		"tsconfig.json": "{\n  \"compilerOptions\": {\n    \"target\": \"ES2023\", \"module\": \"ESNext\", \"moduleResolution\": \"bundler\", \"lib\": [\"ES2023\", \"DOM\"],\n    \"strict\": true, \"noEmit\": true, \"allowJs\": true, \"checkJs\": true\n  },\n  \"include\": [\"*.ts\", \"*.js\"]\n}\n",
		".gitignore":    "node_modules/\n*.wasm\n",
	}
}

func (l javascript) main(dir string) string {
	file := filepath.Join(dir, "tool"+l.ext)
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return ""
	}
	return file
}

func (l javascript) compile(_ context.Context, dir string) ([]byte, error) {
	module, err := bundle.Module(l.main(dir))
	if source := (*bundle.Error)(nil); errors.As(err, &source) {
		return nil, &hinted{err, "docs/javascript.md says what tools find and what they do not"}
	}
	if err != nil {
		return nil, err
	}
	return js.Plugin(module), nil
}
