package document

import (
	"bytes"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrForm means that AppendYAML cannot change a document that is written in this form, for
// example with the list in brackets.
var ErrForm = errors.New("add it by hand")

// AppendYAML appends a string to the list at a top-level key of a YAML document. If the
// key is missing, it is added at the end. It only inserts lines: everything else stays as
// it is, including comments and blank lines. If the document cannot be changed this way,
// the error is ErrForm.
func AppendYAML(data []byte, key, item string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	line, text, err := insertion(&root, key, QuoteYAML(item))
	if err != nil {
		return nil, err
	}

	lines := bytes.SplitAfter(data, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	if line > len(lines) { // at the end
		line = len(lines)
	}
	if line > 0 && !bytes.HasSuffix(lines[line-1], []byte("\n")) {
		lines[line-1] = append(slices.Clone(lines[line-1]), '\n')
	}
	edited := bytes.Join(slices.Insert(lines, line, []byte(text)), nil)
	if err := checkAppended(data, edited, key, item); err != nil {
		return nil, err
	}
	return edited, nil
}

// insertion returns the text to insert, and the number of lines before it.
func insertion(root *yaml.Node, key, item string) (after int, text string, err error) {
	const atEnd = 1 << 30
	if len(root.Content) == 0 {
		return atEnd, key + ":\n  - " + item + "\n", nil
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode || top.Style&yaml.FlowStyle != 0 {
		return 0, "", ErrForm
	}

	for i := 0; i+1 < len(top.Content); i += 2 {
		name, list := top.Content[i], top.Content[i+1]
		if name.Value != key {
			continue
		}
		switch {
		case list.Kind == yaml.ScalarNode && list.Tag == "!!null":
			return name.Line, "  - " + item + "\n", nil
		case list.Kind == yaml.SequenceNode && list.Style&yaml.FlowStyle == 0:
			last := list.Content[len(list.Content)-1]
			return last.Line, strings.Repeat(" ", list.Column-1) + "- " + item + "\n", nil
		}
		return 0, "", ErrForm
	}
	return atEnd, key + ":\n  - " + item + "\n", nil
}

// checkAppended verifies that a document has changed by exactly one item.
func checkAppended(before, after []byte, key, item string) error {
	was, err := Decode(".yaml", before)
	if err != nil {
		return err
	}
	is, err := Decode(".yaml", after)
	if err != nil {
		return ErrForm
	}

	want, _ := was.(map[string]any)
	if want == nil {
		want = map[string]any{}
	}
	list, _ := want[key].([]any)
	want[key] = append(slices.Clone(list), item)
	if !reflect.DeepEqual(is, any(want)) {
		return ErrForm
	}
	return nil
}

// bare matches strings that YAML reads as they are, except for the words that have a
// meaning in YAML.
var bare = regexp.MustCompile(`^(/[A-Za-z0-9_./-]*|[A-Za-z_][A-Za-z0-9_]*)$`)

var yamlWords = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

// QuoteYAML returns a string as a YAML scalar, in quotes if it needs them.
func QuoteYAML(s string) string {
	if bare.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return strconv.QuoteToASCII(s)
}
