// Command openapigen writes the OpenAPI document of the HTTP API,
// server/httpapi/openapi.json. It is run by go generate.
//
// Operations and their parameters come from [httpapi.Routes], schemas from the
// types of what is sent and answered, by reflection. Descriptions and the values
// of enumerations are in neither: they are read from the source of these types,
// where the comments are, and examples from the conversations in testdata.
//
// The schemas are values of jsonschema-go, which can also infer schemas itself.
// That is not used: it has no references, so that a type is written out
// wherever it is used, lets null be wherever Go has a pointer or a slice, and
// takes descriptions only from tags.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/server/httpapi"
)

// place is where the document is, below the module.
const place = "server/httpapi/openapi.json"

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "openapigen:", err)
		os.Exit(1)
	}
}

func write() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	text, err := generate(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(place)), text, 0o666)
}

// generate returns the document, from the source of the module at root.
func generate(root string) ([]byte, error) {
	examples, err := readExamples(filepath.Join(root, "server", "httpapi", "testdata"), httpapi.Routes())
	if err != nil {
		return nil, err
	}
	b := builder{schemas: newSchemas(&source{root: root}), examples: examples}
	doc, err := b.document(httpapi.Routes())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(doc)
	return unescape(out.Bytes()), err
}

// unescape undoes what schemas escape for HTML when they write themselves.
func unescape(text []byte) []byte {
	for _, c := range "<>&" {
		text = bytes.ReplaceAll(text, fmt.Appendf(nil, `\u%04x`, c), []byte(string(c)))
	}
	return text
}

// moduleRoot is the folder above this one that has go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("there is no go.mod above this folder")
		}
		dir = up
	}
}
