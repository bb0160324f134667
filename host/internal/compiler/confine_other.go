//go:build !linux && !darwin

package compiler

import "os"

// confineProcess does nothing: what there is here are the child's own look at
// its memory and the time that its parent gives it.
func confineProcess(job) error { return nil }

// crashed reports whether a process was ended by a fault of its own: here it
// ends with an exit code.
func crashed(*os.ProcessState) bool { return false }
