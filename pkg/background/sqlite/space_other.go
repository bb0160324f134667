//go:build !linux && !darwin

package sqlite

// scarce always reports false: only a change that fails shows that the disk is full.
func scarce(string) bool { return false }
