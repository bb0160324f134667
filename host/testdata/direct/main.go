// Plugin direct runs the vectors in abi/testdata/waiting.json without an SDK: it has no
// goroutines, and returns to the host whenever it waits. It also checks the rules for ids
// and codes that no SDK shows.
package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"unsafe"

	"github.com/toolhost/toolhost/abi"
)

//go:wasmimport toolhost_v1 read
func read(field int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport toolhost_v1 write
func write(stream int32, ptr unsafe.Pointer, size int32) int32

//go:wasmimport toolhost_v1 call_start
func callStart(op unsafe.Pointer, opSize int32, ptr unsafe.Pointer, size int32) int32

func main() {}

// result is how an operation has ended.
type result struct {
	Failure  string          `json:"failure,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
}

// wait is the state of the tool.
var wait struct {
	Rounds [][]struct {
		Op      string
		Request json.RawMessage
		Cancel  bool
	}
	Quiet, First bool
	Error        string

	results [][]*result   // of the rounds that have begun
	pending map[int32]int // the numbers of operations in the last one, by id; -1 is an op.cancel
	last    int32         // id
}

var calls int

//go:wasmexport toolhost_invoke
func invoke() int32 {
	switch string(field(abi.FieldTool)) {
	case "state":
		calls++
		return finish(calls)
	case "stuck":
		return abi.InvokeWaiting
	}
	must(json.Unmarshal(field(abi.FieldArgs), &wait))
	wait.pending = map[int32]int{}
	return proceed()
}

// proceed begins rounds until something is pending.
func proceed() int32 {
	for len(wait.pending) == 0 && !over() {
		begin()
	}

	switch {
	case !over():
		return abi.InvokeWaiting
	case wait.Error != "":
		put(abi.StreamError, []byte(wait.Error))
		return abi.InvokeToolError
	}
	return finish(append([][]*result{}, wait.results...))
}

// begin starts the operations of the next round, and then cancels some.
func begin() {
	round := wait.Rounds[len(wait.results)]
	wait.results = append(wait.results, make([]*result, len(round)))
	var cancel []int32
	for i, o := range round {
		id := start(o.Op, o.Request)
		if id < 0 {
			end(i, id)
			continue
		}
		wait.pending[id] = i
		if o.Cancel {
			cancel = append(cancel, id)
		}
	}
	for _, id := range cancel {
		own := start("op.cancel", fmt.Appendf(nil, `{"id":%d}`, id))
		check(own > 0, "an operation that is pending can be canceled")
		wait.pending[own] = -1
	}
}

// start starts an operation.
func start(op string, request []byte) int32 {
	id := callStart(unsafe.Pointer(unsafe.StringData(op)), int32(len(op)), unsafe.Pointer(unsafe.SliceData(request)), int32(len(request)))
	if id >= 0 {
		wait.last++
		check(id == wait.last, "ids are 1, 2, 3, …")
	}
	return id
}

//go:wasmexport toolhost_resume
func resume(id, code int32) int32 {
	i, known := wait.pending[id]
	check(known, "the end of an operation is reported once, and of no other")
	delete(wait.pending, id)
	if i < 0 {
		check(string(field(abi.FieldResponse)) == "{}", "op.cancel answers {}")
	} else {
		end(i, code)
	}
	return proceed()
}

// end keeps how an operation of the last round has ended. Its response can be read now.
func end(i int, code int32) {
	response := field(abi.FieldResponse)
	r := &result{Response: response}
	if code < 0 {
		var failure abi.CallFailure
		must(json.Unmarshal(response, &failure))
		check(codes[failure.Code] == code, "the code and its name are the same")
		r = &result{Failure: failure.Code}
	} else {
		check(int(code) == len(response), "the code is the length of the response")
	}

	wait.results[len(wait.results)-1][i] = r
	if !wait.Quiet {
		put(abi.StreamOutput, fmt.Appendln(nil, i))
	}
}

var codes = map[string]int32{
	"denied": abi.CallDenied, "unknown": abi.CallUnknown, "invalid": abi.CallInvalid, "failed": abi.CallFailed,
	"limit": abi.CallLimit, "canceled": abi.CallCanceled, "conflict": abi.CallConflict, "lost": abi.CallLost,
}

// over reports whether the tool waits for nothing more.
func over() bool {
	n := len(wait.results)
	if wait.First && n > 0 && slices.ContainsFunc(wait.results[n-1], func(r *result) bool { return r != nil }) {
		return true
	}
	return n == len(wait.Rounds) && len(wait.pending) == 0
}

func finish(value any) int32 {
	data, err := json.Marshal(value)
	must(err)
	put(abi.StreamResult, data)
	return abi.InvokeOK
}

func put(s abi.Stream, data []byte) {
	check(write(int32(s), unsafe.Pointer(unsafe.SliceData(data)), int32(len(data))) >= 0, "it can be written")
}

func field(f abi.Field) []byte {
	size := read(int32(f), nil, 0)
	check(size >= 0, "the field is there")
	data := make([]byte, size)
	read(int32(f), unsafe.Pointer(unsafe.SliceData(data)), size)
	return data
}

func check(holds bool, what string) {
	if !holds {
		panic("the contract is broken: " + what)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
