//go:build !unix

package main

// safeData accepts every data folder: who can write to one is not told by its
// mode here.
func safeData(string) error { return nil }
