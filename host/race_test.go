//go:build race

package host_test

func init() { raced = true }
