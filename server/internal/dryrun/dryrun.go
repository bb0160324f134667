// Package dryrun marks the contexts of dry runs, which change and store nothing.
package dryrun

import "context"

type key struct{}

// With returns a context for a dry run.
func With(ctx context.Context) context.Context {
	if In(ctx) {
		return ctx
	}
	return context.WithValue(ctx, key{}, true)
}

// In reports whether a context belongs to a dry run.
func In(ctx context.Context) bool { return ctx.Value(key{}) != nil }
