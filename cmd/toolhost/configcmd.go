package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func (a *app) configuration() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the effective configuration and where each value comes from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if check {
				return a.checkFolders()
			}
			values := a.config.values()
			if a.json {
				a.printJSON(values)
				return nil
			}
			w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
			for _, v := range values {
				fmt.Fprintf(w, "%s\t%v\t%s\n", v.Key, v.Value, v.Source)
			}
			return w.Flush()
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	cmd.Flags().BoolVar(&check, "check", false, "print nothing, and fail if something in it cannot work")
	return cmd
}

// setting is one value and its source.
type setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// values are all keys that have a value, or could.
func (c *loaded) values() []setting {
	keys := leaves()
	for key := range c.merged.All() {
		if _, ok := keys[key]; !ok {
			keys[key] = nil
		}
	}
	var out []setting
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		s := setting{Key: strings.ReplaceAll(key, delim, "."), Value: c.merged.Get(key), Source: "built in"}
		for _, l := range c.layers {
			if !l.k.Exists(key) {
				continue
			}
			if s.Source = l.name; l.of != nil {
				s.Source = l.of(key)
			}
		}
		if s.Value == nil {
			s.Value = ""
		}
		if key == "token" && s.Value != "" {
			s.Value = "<redacted>"
		}
		out = append(out, s)
	}
	return out
}

// checkFolders fails if a folder the configuration names is not there.
func (a *app) checkFolders() error {
	folder := func(key, dir string) error {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder", dir)
		}
		if err != nil {
			return &usageError{fmt.Errorf("%s: %w", key, err), "toolhost config shows where each value comes from"}
		}
		return nil
	}
	for _, dir := range a.config.Plugins {
		if err := folder("plugins", dir); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.config.Grants)) {
		for i, m := range a.config.Grants[name].Files {
			if err := folder(fmt.Sprintf("grants.%s.files.%d.dir", name, i), m.Dir); err != nil {
				return err
			}
		}
	}
	return nil
}
