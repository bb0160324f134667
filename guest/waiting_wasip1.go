package guest

import (
	"runtime"
	"strconv"
	"unsafe"

	"github.com/toolhost/toolhost/abi"
)

//go:wasmimport toolhost_v1 call_start
func hostStart(op unsafe.Pointer, opSize int32, ptr unsafe.Pointer, size int32) int32

// The host waits in place of the module: while a tool waits, the module's exports have
// returned. So the tool runs on a goroutine of its own, the worker, and the goroutine
// of the exports returns abi.InvokeWaiting as soon as no goroutine can run.

// work is the call that the worker runs.
type work struct {
	call     *Call
	answered bool // whether it has written a result
	ended    bool
	code     int32 // result of toolhost_invoke, once it has ended
}

var (
	now  = new(work) // the current call
	next *work       // call that the worker has not begun yet
)

// startWorker starts the worker. Its stack is part of the state that calls begin with.
func startWorker() {
	openIdle()
	go func() {
		growStack()
		for {
			for next == nil { // a channel would cost a short call a fifth of its time
				runtime.Gosched()
			}
			next = nil
			now.run()
		}
	}()
	runtime.Gosched()
}

// growStack makes the worker's stack grow to the size that most calls need, before
// the first of them.
//
//go:noinline
func growStack() {
	var frame [32 << 10]byte
	touch(&frame)
}

//go:noinline
func touch(frame *[32 << 10]byte) { frame[0] = 1 }

func (w *work) run() {
	returned := false
	defer func() {
		if !returned { // Invoke recovers from panics
			w.code = failed("the tool ended its goroutine with runtime.Goexit: return instead")
		}
		w.ended = true
		wake()
	}()
	w.code = served.Invoke(imports{})
	returned = true
}

// failed ends a call that the tool cannot end.
func failed(message string) int32 {
	stacks := make([]byte, 32<<10)
	stacks = stacks[:runtime.Stack(stacks, true)]
	imports{}.Write(abi.StreamErrorLog, append([]byte(message+"\n"), stacks...))
	imports{}.Write(abi.StreamError, []byte(message))
	return abi.InvokePanic
}

//go:wasmexport toolhost_invoke
func invoke() int32 {
	if served == nil {
		return served.Invoke(imports{}) // it reports that
	}
	now = new(work)
	next = now
	return settle()
}

// ended is the outcome of an operation.
type ended struct {
	code     int32
	response []byte
}

// pending holds the operations that were started: for each, a goroutine waits for its end.
var pending = map[int32]chan ended{}

// room limits the pending operations to as many as a call may have, less one for the timer.
var room = make(chan struct{}, abi.MaxPending-1)

//go:wasmexport toolhost_resume
func resume(id, code int32) int32 {
	if e, ok := pending[id]; ok {
		delete(pending, id)
		e <- ended{code, readField(imports{}, abi.FieldResponse)}
	} else if id == timer.id {
		timer.end(code)
	}
	return settle()
}

// turns is how often other goroutines may run before the module prepares to wait: more
// often than a short call yields.
const turns = 4

// settle runs the goroutines of the tool until it has ended or none of them can run, and
// returns the module's response to the host.
func settle() int32 {
	for range turns {
		runtime.Gosched()
		if now.ended {
			return now.code
		}
	}

	next, err := untilIdle()
	switch {
	case now.ended:
		return now.code
	case err != nil:
		return failed("the host does not say when the tool waits: " + err.Error())
	case next < 0 && len(pending) == 0:
		return failed("the tool waits for something that cannot happen: all goroutines are blocked, and none of them waits for the host or for a timer")
	}

	if next >= 0 {
		if err := timer.set(next); err != nil {
			return failed("a timer: " + err.Error())
		}
	}
	return abi.InvokeWaiting
}

// Await implements awaiter.
func (h imports) Await(done <-chan struct{}, op string, request []byte) (int32, []byte) {
	if done == nil { // without a select, which is slow
		room <- struct{}{}
	} else {
		select {
		case room <- struct{}{}:
		case <-done:
			return abi.CallCanceled, nil
		}
	}
	defer func() { <-room }()

	id, response := h.start(op, request)
	if id < 0 {
		return id, response
	}
	end := make(chan ended, 1)
	pending[id] = end

	if done != nil {
		select {
		case e := <-end:
			return e.code, e.response
		case <-done:
			cancelOperation(id)
		}
	}
	e := <-end
	return e.code, e.response
}

// start starts an operation. If the host refuses, it returns the response.
func (h imports) start(op string, request []byte) (id int32, response []byte) {
	now.call.calling.Lock()
	defer now.call.calling.Unlock()
	id = hostStart(unsafe.Pointer(unsafe.StringData(op)), int32(len(op)), unsafe.Pointer(unsafe.SliceData(request)), int32(len(request)))
	if id < 0 {
		response = readField(h, abi.FieldResponse)
	}
	return id, response
}

// cancelOperation cancels an operation, which then ends soon.
func cancelOperation(id int32) {
	now.call.calling.Lock()
	defer now.call.calling.Unlock()
	imports{}.Call("op.cancel", []byte(`{"id":`+strconv.Itoa(int(id))+`}`))
}
