package lock

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/toolhost/toolhost/internal/owned"
)

const header = "# What was accepted of each plugin. toolhost lock writes it: review a change like code.\n"

// Encode returns the content of the lock file. Equal locks produce equal bytes. If [Parse]
// would refuse the result, Encode returns the error of Parse.
func (f *File) Encode() ([]byte, error) {
	sorted := File{Version: Version, Plugins: slices.Clone(f.Plugins)}
	slices.SortFunc(sorted.Plugins, func(a, b Plugin) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted.Plugins {
		p := &sorted.Plugins[i]
		p.Grants = slices.Sorted(slices.Values(p.Grants))
	}

	out := bytes.NewBufferString(header)
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	err := encoder.Encode(sorted) // it sorts the keys of mappings
	if err = errors.Join(err, encoder.Close()); err != nil {
		return nil, err
	}
	_, err = Parse(out.Bytes())
	return out.Bytes(), err
}

// Write writes a lock that every user can read: it is not secret, and the server may run as
// a different user. The write is atomic: readers see either the old or the new content.
func Write(name string, f *File) error {
	data, err := f.Encode()
	if err != nil {
		return err
	}
	return owned.Replace(name, data, 0o644)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
