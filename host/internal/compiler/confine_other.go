//go:build !linux && !darwin

package compiler

import "os"

// confineProcess does nothing: the only limits are the child's own check of
// its memory and the timeout of its parent.
func confineProcess(job) error { return nil }

// crashed reports whether a process crashed. On these systems a crash only shows in the exit code.
func crashed(*os.ProcessState) bool { return false }

func onDisk(info os.FileInfo) int64 { return info.Size() }
