package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
)

// An app of your own does not need this file: it will have a folder of plugins
// already.

// buildPlugins builds the example plugins for the task from source, unless that
// was done before, and returns their folder. If dist is empty, that is the
// folder in the clone.
func buildPlugins(ctx context.Context, dist string) (string, error) {
	plugins := []string{"primes", "wordcount", "clock"}
	return pluginbuild.Examples(ctx, host.Config{CacheDir: cacheDir()}, dist, plugins, func(name string, _, _ int) {
		fmt.Fprintln(os.Stderr, "building the plugin", name)
	})
}

// cacheDir returns a folder for compiled plugins, so that the second start need
// not compile them again.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // they are kept in memory
	}
	return filepath.Join(dir, "toolhost-agent")
}
