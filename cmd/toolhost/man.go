package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:               "man FOLDER",
		Short:             "Write the manual pages of all commands into a folder",
		Hidden:            true, // for packagers
		Args:              cobra.ExactArgs(1),
		PersistentPreRunE: withoutConfig,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManuals(cmd.Root(), args[0])
		},
	}
}

// writeManuals writes a page in section 1 for each command. The pages have the date of
// the commit, or the one in the variable SOURCE_DATE_EPOCH, so that the same source
// gives the same pages.
func writeManuals(root *cobra.Command, dir string) error {
	b := thisBuild()
	header := &doc.GenManHeader{Section: "1", Source: "Toolhost " + b.Version, Manual: "Toolhost"}
	if at, err := time.Parse(time.RFC3339, b.Date); err == nil && os.Getenv("SOURCE_DATE_EPOCH") == "" {
		header.Date = &at
	}

	root.DisableAutoGenTag = true // it would contain today's date
	root.InitDefaultHelpCmd()
	return doc.GenManTree(root, header, dir)
}
