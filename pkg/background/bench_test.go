package background

import (
	"bytes"
	"context"
	"fmt"
	"github.com/toolhost/toolhost/pkg/background/engine"
	"github.com/toolhost/toolhost/pkg/background/output"
	"testing"
	"time"
)

func BenchmarkSink(b *testing.B) {
	line := []byte("a line of output as tools write it, some eighty characters long, with an end....\n")
	for name, chunk := range map[string][]byte{"32KiB": bytes.Repeat(line, 400), "line": line} {
		b.Run("stdout/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			out := output.NewSink(0).Stdout()
			for b.Loop() {
				_, _ = out.Write(chunk)
			}
		})
		b.Run("stderr/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			out := output.NewSink(0).Stderr()
			for b.Loop() {
				_, _ = out.Write(chunk)
			}
		})
	}
}

// BenchmarkSinkGigabyte writes 1 GiB into one sink; B/op is all the memory that this
// takes.
func BenchmarkSinkGigabyte(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 2048) // 32 KiB
	b.SetBytes(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		out := output.NewSink(0).Stdout()
		for range 1 << 15 {
			_, _ = out.Write(chunk)
		}
	}
}

// BenchmarkSinkOfARun writes 1 GiB into the sink of a live run, whose output is stored
// at the same time; B/op is all the memory that this takes.
func BenchmarkSinkOfARun(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 2048) // 32 KiB
	m := newBench(b, Config{Executor: func(_ context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
		out := sink.Stdout()
		for range 1 << 15 {
			_, _ = out.Write(chunk)
		}
		return Outcome{}, nil
	}})
	b.SetBytes(1 << 30)
	b.ReportAllocs()
	for b.Loop() {
		s, err := m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool", Silent: true})
		if err == nil {
			_, err = awaited(b.Context(), m, "session", []string{s.ID}, UntilAny)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// newBench returns a manager whose limits are out of the way. It is closed at the end.
func newBench(b *testing.B, cfg Config) *Manager {
	cfg.PerSession, cfg.PerHost = 1<<20, 1<<20
	m, err := New(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		if err := m.Close(done); err != nil {
			b.Error(err)
		}
	})
	return m
}

// BenchmarkStop measures how long a forced stop takes: until the work is notified, and
// until the caller gets the answer.
func BenchmarkStop(b *testing.B) {
	began, stopped := make(chan struct{}), make(chan time.Time, 1)
	m := newBench(b, Config{Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
		began <- struct{}{}
		<-ctx.Done()
		stopped <- time.Now()
		return Outcome{}, ctx.Err()
	}})
	var told, answered time.Duration
	for b.Loop() {
		s, err := m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool", Silent: true})
		if err != nil {
			b.Fatal(err)
		}
		<-began
		asked := time.Now()
		if _, err := m.Stop(b.Context(), "session", s.ID, StopRequest{Force: true}); err != nil {
			b.Fatal(err)
		}
		answered += time.Since(asked)
		told += (<-stopped).Sub(asked)
	}
	b.ReportMetric(float64(told.Nanoseconds())/float64(b.N), "ns/told")
	b.ReportMetric(float64(answered.Nanoseconds())/float64(b.N), "ns/answered")
}

// BenchmarkWaitAny measures the time from when the work ends to when a check that waits
// for any of 20 runs returns.
func BenchmarkWaitAny(b *testing.B) {
	end := make(chan struct{})
	m := newBench(b, Config{Executor: func(ctx context.Context, _ engine.Run, _ *output.Sink) (Outcome, error) {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return Outcome{}, nil
	}})
	ids := make([]string, MaxIDs)
	for i := range ids[1:] {
		s, err := m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool", Silent: true})
		if err != nil {
			b.Fatal(err)
		}
		ids[i+1] = s.ID
	}
	var woken time.Duration
	for b.Loop() {
		for i, id := range ids { // one has ended
			if id != "" && !must(m.Get(b.Context(), "session", id)).Status.Terminal() {
				continue
			}
			ids[i] = must(m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool", Silent: true})).ID
		}
		began := make(chan time.Time, 1)
		time.AfterFunc(100*time.Microsecond, func() { began <- time.Now(); end <- struct{}{} })
		if _, err := m.Check(b.Context(), "session", CheckRequest{IDs: ids, Wait: time.Minute, MaxChars: -1}); err != nil {
			b.Fatal(err)
		}
		woken += time.Since(<-began)
	}
	b.ReportMetric(float64(woken.Nanoseconds())/float64(b.N), "ns/woken")
}

func BenchmarkSpawn(b *testing.B) {
	m := newBench(b, Config{Executor: func(context.Context, engine.Run, *output.Sink) (Outcome, error) { return Outcome{}, nil }})
	i := 0
	for b.Loop() {
		if _, err := m.Spawn(b.Context(), fmt.Sprint(i%64), SpawnRequest{Tool: "tool"}); err != nil {
			b.Fatal(err)
		}
		i++
	}
	if err := m.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkCheck(b *testing.B) {
	m, err := New(b.Context(), Config{Executor: func(ctx context.Context, _ engine.Run, sink *output.Sink) (Outcome, error) {
		_, _ = sink.Stdout().Write(bytes.Repeat([]byte("a line of output\n"), 1000))
		<-ctx.Done()
		return Outcome{}, ctx.Err()
	}})
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Spawn(b.Context(), "session", SpawnRequest{Tool: "tool"})
	if err != nil {
		b.Fatal(err)
	}
	cursor := ""
	for name, after := range map[string]*string{"tail": new(string), "cursor": &cursor} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				checked, err := m.Check(b.Context(), "session", CheckRequest{IDs: []string{s.ID}, Cursor: *after})
				if err != nil {
					b.Fatal(err)
				}
				cursor = checked.Reports[0].Output.Cursor
			}
		})
	}
	if _, err := m.Stop(b.Context(), "session", s.ID, StopRequest{Force: true}); err != nil {
		b.Fatal(err)
	}
	if err := m.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
