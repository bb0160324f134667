package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/pluginbuild"
)

// An app of your own needs nothing of this file: it has a folder of plugins.

// buildPlugins builds the example plugins the task needs from source, as far as
// they are not there.
func buildPlugins(ctx context.Context, sources, dist string) error {
	if _, err := os.Stat(sources); err != nil {
		return fmt.Errorf("run it in a clone of the project, at the top, where the example plugins are: %w", err)
	}
	h, err := host.New(ctx, host.Config{CacheDir: cacheDir()})
	if err != nil {
		return err
	}
	defer h.Close(ctx)
	for _, name := range []string{"primes", "wordcount", "clock"} {
		s := pluginbuild.Source{Name: name, Dir: filepath.Join(sources, name)}
		if !s.Stale(dist, "guest", "abi") {
			continue
		}
		fmt.Fprintln(os.Stderr, "building the plugin", name)
		if err := pluginbuild.Build(ctx, h, s, dist); err != nil {
			return err
		}
	}
	return nil
}

// cacheDir is for compiled plugins: the second start has them at once.
func cacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "" // they are kept in memory
	}
	return filepath.Join(dir, "toolhost-agent")
}
