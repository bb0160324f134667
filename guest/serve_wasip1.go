package guest

import (
	"runtime"
	"unsafe"

	"github.com/toolhost/toolhost/abi"
)

//go:wasmimport toolhost_v1 read
func hostRead(field int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport toolhost_v1 write
func hostWrite(kind int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport toolhost_v1 progress
func hostProgress(done, total float64, ptr unsafe.Pointer, size int32) int32

//go:wasmimport toolhost_v1 call
func hostCall(op unsafe.Pointer, opSize int32, ptr unsafe.Pointer, size int32) int32

// served is the plugin of this module, set before the exports below are called.
var served *Plugin

// Serve makes p the plugin of this module. Call it once, in an init function.
// On platforms other than wasip1 it does nothing.
func Serve(p *Plugin) {
	if served != nil {
		panic("guest.Serve was called twice: a module is one plugin, with several tools if needed")
	}
	served = p
	startWorker()
}

// running is the current call. An instance runs one at a time.
var running *Call

func setRunning(c *Call) (done func()) {
	running, now.call = c, c
	return func() { running = nil }
}

// Running returns the call that is running in this module, for packages that cannot get
// it as an argument. It returns nil outside of a handler, and on platforms other than
// wasip1, where several calls can run concurrently.
func Running() *Call { return running }

//go:wasmexport toolhost_describe
func describe() int32 {
	defer runtime.Gosched()
	return served.Describe(imports{})
}

// imports is the host outside the module. Its methods, like the exports, yield:
// nothing in a module preempts a goroutine, and the garbage collector needs time to
// run.
type imports struct{}

func (imports) Read(f abi.Field, into []byte) int32 {
	return hostRead(int32(f), unsafe.Pointer(unsafe.SliceData(into)), int32(len(into)))
}

func (imports) Write(s abi.Stream, data []byte) int32 {
	if s != abi.StreamResult || now.answered { // most calls end after their one result
		defer runtime.Gosched()
	}
	now.answered = now.answered || s == abi.StreamResult
	return hostWrite(int32(s), unsafe.Pointer(unsafe.SliceData(data)), int32(len(data)))
}

func (imports) Progress(done, total float64, message string) int32 {
	defer runtime.Gosched()
	return hostProgress(done, total, unsafe.Pointer(unsafe.StringData(message)), int32(len(message)))
}

func (imports) Call(op string, request []byte) int32 {
	defer runtime.Gosched()
	return hostCall(unsafe.Pointer(unsafe.StringData(op)), int32(len(op)),
		unsafe.Pointer(unsafe.SliceData(request)), int32(len(request)))
}
