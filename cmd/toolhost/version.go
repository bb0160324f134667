package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build identifies the sources from which this program was built.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"commit_date,omitempty"`
	Modified bool   `json:"modified,omitempty"` // whether the sources had changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild returns what the Go toolchain has recorded in the program. Only a build
// in a checkout knows its commit.
func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}

	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// version returns the version of the Go module.
func version() string { return thisBuild().Version }

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Print the version, the commit and the platform of this program",
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutConfig,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			return a.answer(b, nil, func() {
				a.printf("toolhost %s\n", b.Version)
				if b.Commit != "" {
					a.printf("commit   %s of %s\n", b.Commit, b.Date)
				}
				if b.Modified {
					a.printf("modified: files differ from the commit\n")
				}
				a.printf("go       %s\nplatform %s\n", b.Go, b.Platform)
			})
		},
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// withoutConfig is the PersistentPreRunE of commands that use no configuration, and
// that must work even if the configuration is broken.
func withoutConfig(*cobra.Command, []string) error { return nil }
