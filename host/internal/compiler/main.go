package compiler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

// maxStack is the largest stack of the child in bytes. wazero's compiler
// recurses once for each block that a value lives through.
const maxStack = 256 << 20

// Main builds one module and exits, if the process was started by a [Process]. Otherwise it
// returns immediately. The program that [Process].Path names must call it first.
func Main() {
	if len(os.Args) != 1 || os.Args[0] != ChildName {
		return
	}
	if err := serve(os.Stdin, os.Stdout, Build); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve reads a job, builds it in the working directory and answers.
func serve(in io.Reader, out io.Writer, build func(ctx context.Context, dir string, wasm []byte) error) error {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	if err := confine(j); err != nil {
		return err
	}

	wasm := make([]byte, j.Size)
	if _, err := io.ReadFull(r, wasm); err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}

	var answer reply
	if err := build(context.Background(), ".", wasm); err != nil {
		answer.Failed, answer.Full = clip(err.Error()), errors.Is(err, syscall.ENOSPC)
		if refused, ok := errors.AsType[*Error](err); ok {
			answer.Refused = &Error{Part: refused.Part, Reason: clip(refused.Reason)}
		}
	}
	return json.NewEncoder(out).Encode(answer)
}

// clip limits the length of a text that may quote the module.
func clip(s string) string {
	const most = 4096
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// confine gives up the rights of this process that a build does not need.
func confine(j job) error {
	debug.SetTraceback("none")
	debug.SetMaxStack(maxStack)
	debug.SetGCPercent(400)                // the process ends soon
	debug.SetMemoryLimit(j.Memory / 4 * 3) // but collect more often close to the hard limit
	go watchMemory(j.Memory)
	return confineProcess(j)
}

const (
	// memoryInterval is how often a child checks its memory.
	memoryInterval = 5 * time.Millisecond
	// muchMark is the line that a child writes to stderr when it has used a quarter
	// of its memory. Its use can double between two checks.
	muchMark = "toolhost: a quarter of the memory is taken\n"
)

// watchMemory writes muchMark when Go's runtime has taken more than a quarter of most
// bytes, and ends this process when it has taken more than most. Systems that limit a
// process's data do the latter immediately.
func watchMemory(most int64) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	much := false
	for range time.Tick(memoryInterval) {
		metrics.Read(samples)
		taken := samples[0].Value.Uint64() - samples[1].Value.Uint64()
		if taken > uint64(most)/4 && !much {
			much = true
			_, _ = os.Stderr.WriteString(muchMark)
		}
		if taken > uint64(most) {
			os.Exit(exitMemory)
		}
	}
}
