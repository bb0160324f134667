// World is a WASI command that prints its guest environment, and changes
// granted files as its arguments say.
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

type args struct {
	Do         string // look, sleep, steps, hog, out, err or exit
	N          int
	Text, Path string
	Steps      []step
}

// step is something done to a file. Its answer is what was read, or the error.
type step struct{ Do, Path, To, Text string }

type sights struct {
	Args   []string
	Env    []string
	Now    []time.Time
	Passed time.Duration
	Random []byte
	Map    []string // in the order of this run
	Root   []string
	Error  string
}

func main() {
	var in args
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch in.Do {
	case "look":
		answer(look())
	case "sleep":
		start := time.Now()
		time.Sleep(time.Duration(in.N) * time.Hour)
		answer(time.Since(start) >= time.Duration(in.N)*time.Hour)
	case "steps":
		var said []string
		for _, s := range in.Steps {
			said = append(said, s.do())
		}
		answer(said)
	case "hog": // more than it may have
		var taken [][]byte
		for {
			taken = append(taken, make([]byte, in.N<<20))
			taken[len(taken)-1][0] = 1
		}
	case "out":
		for range in.N {
			if _, err := fmt.Print(in.Text); err != nil {
				os.Exit(9)
			}
		}
	case "err":
		for range in.N {
			fmt.Fprint(os.Stderr, in.Text)
		}
		os.Exit(1)
	case "exit":
		fmt.Print(in.Text)
		os.Exit(in.N)
	}
}

func answer(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func look() sights {
	s := sights{Args: os.Args, Env: os.Environ(), Random: make([]byte, 16)}
	start := time.Now()
	for range 3 {
		s.Now = append(s.Now, time.Now())
	}
	s.Passed = time.Since(start)
	_, _ = rand.Read(s.Random)
	for k := range map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9} {
		s.Map = append(s.Map, k)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		s.Error = err.Error()
	}
	for _, e := range entries {
		s.Root = append(s.Root, e.Name())
	}
	return s
}

func (s step) do() string {
	var data []byte
	var err error
	switch s.Do {
	case "read":
		data, err = os.ReadFile(s.Path)
	case "write":
		err = os.WriteFile(s.Path, []byte(s.Text), 0o644)
	case "remove":
		err = os.Remove(s.Path)
	case "rename":
		err = os.Rename(s.Path, s.To)
	case "mkdir":
		err = os.Mkdir(s.Path, 0o755)
	case "link":
		err = os.Symlink(s.To, s.Path)
	case "list":
		var entries []os.DirEntry
		entries, err = os.ReadDir(s.Path)
		for _, e := range entries {
			data = fmt.Append(data, e.Name(), " ")
		}
	}
	if err != nil {
		return err.Error()
	}
	return string(data)
}
