package guestcall

// WaitedError is the reason of a call that ended while it waited to run, or while
// one of its HTTP requests waited to begin.
type WaitedError struct {
	Err error  // why the wait ended, usually a TimeoutError
	For string // what the call waited for, and the remedy
}

func (e *WaitedError) Error() string { return e.Err.Error() + " while the call waited: " + e.For }

// Unwrap returns the reason why the wait ended.
func (e *WaitedError) Unwrap() error { return e.Err }
