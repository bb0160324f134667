package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/examples/pluginbuild"
	"github.com/toolhost/toolhost/host"
)

// An app of your own does not need this file: it has a folder of plugins.

// buildPlugins builds the example plugins of the task from source, unless that
// was done before, and returns their folder. An empty one is that of the clone.
func buildPlugins(ctx context.Context, dist string) (string, error) {
	plugins := []string{"primes", "wordcount", "clock"}
	return pluginbuild.Examples(ctx, host.Config{CacheDir: cacheDir()}, dist, plugins, func(name string, _, _ int) {
		fmt.Fprintln(os.Stderr, "building the plugin", name)
	})
}

// cacheDir is for compiled plugins: the second start has them at once.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // they are kept in memory
	}
	return filepath.Join(dir, "toolhost-agent")
}
