package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// saver saves a tool's results in files. It never overwrites a file, and uses no part of a
// file name that comes from the plugin. The zero saver saves nothing.
type saver struct{ path string }

// flag adds the flag --output.
func (s *saver) flag(flags *pflag.FlagSet) {
	flags.StringVarP(&s.path, "output", "o", "", "save images, audio and resources, or else the result, as `FILE`, or numbered in FOLDER/")
}

// folder reports whether the results are to be saved in a folder.
func (s saver) folder() bool {
	if s.path == "" || os.IsPathSeparator(s.path[len(s.path)-1]) {
		return s.path != ""
	}
	info, err := os.Stat(s.path)
	return err == nil && info.IsDir()
}

// check refuses a path to which nothing can be saved. It is called before the tool runs.
func (s saver) check() error {
	var problem string
	switch _, err := os.Lstat(s.path); {
	case s.path == "":
		return nil
	case s.folder():
		if err := os.MkdirAll(s.path, 0o777); err != nil {
			return &usageError{fmt.Errorf("--output: %w", err), ""}
		}
		return nil
	case err == nil:
		problem = s.path + " exists, and is not overwritten"
	default:
		if info, err := os.Stat(filepath.Dir(s.path)); err == nil && info.IsDir() {
			return nil
		}
		problem = "there is no folder " + filepath.Dir(s.path)
	}
	return &usageError{errors.New("--output: " + problem), "choose another file, or a folder such as results/"}
}

// savedResult is what is left of a result after saving.
type savedResult struct {
	value   json.RawMessage
	content []abi.Block
	lines   []string // lines that replace the saved content
}

// save saves the binary content or, if there is none, the result. It returns what is left
// to print. If an error occurs, the files saved before it stay.
func (s saver) save(value json.RawMessage, content []abi.Block) (left savedResult, err error) {
	left.value = value
	if s.path == "" {
		left.content = content
		return left, nil
	}

	n := 0
	for _, b := range content {
		data, ending := blockData(b)
		if ending == "" {
			left.content = append(left.content, b)
			continue
		}
		n++
		name, err := s.write(n, ending, data)
		if err != nil {
			return left, err
		}
		left.lines = append(left.lines, fmt.Sprintf("[%s %s, %s: %s]", b.Type, oneLine(b.MIMEType), human.Bytes(int64(len(data))), oneLine(name)))
	}
	if n > 0 {
		return left, nil
	}

	var text strings.Builder
	plain := &ui{out: &text}
	plain.printResult(value, content)
	ending := ".json"
	if len(value) == 0 || value[0] == '"' || len(content) > 0 {
		ending = ".txt"
	}
	_, err = s.write(1, ending, []byte(text.String()))
	return savedResult{}, err
}

// write writes the nth file, under the next name that is free.
func (s saver) write(n int, ending string, data []byte) (name string, err error) {
	for ; ; n++ {
		switch base := strings.TrimSuffix(s.path, filepath.Ext(s.path)); {
		case s.folder():
			name = filepath.Join(s.path, fmt.Sprintf("%d%s", n, ending))
		case n == 1:
			name = s.path
		default:
			name = fmt.Sprintf("%s-%d%s", base, n, ending)
		}

		if err = writeNew(name, data, 0o666); !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
}

// endings maps media types to file name endings.
var endings = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"audio/wav": ".wav", "audio/x-wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/flac": ".flac",
	"application/json": ".json", "application/pdf": ".pdf", "text/csv": ".csv", "text/html": ".html", "text/markdown": ".md",
}

// blockData returns the data in a block, and the ending for its file. It returns nothing
// for a block that is only shown.
func blockData(b abi.Block) (data []byte, ending string) {
	media, _, _ := strings.Cut(b.MIMEType, ";")
	ending = endings[strings.ToLower(strings.TrimSpace(media))]
	switch {
	case b.Type == "resource":
		return []byte(b.Text), cmp.Or(ending, ".txt")
	case len(b.Data) == 0:
		return nil, ""
	case ending == "":
		ending = ".bin"
	}
	return b.Data, ending
}

// printSaved prints what is left of a result, and where the files were saved.
func (u *ui) printSaved(left savedResult) {
	u.printResult(left.value, left.content)
	for _, line := range left.lines {
		u.printf("%s\n", line)
	}
}
