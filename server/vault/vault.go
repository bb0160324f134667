// Package vault keeps the secrets of an operator: where each value comes from, and
// where it may go. It implements [host.Secrets].
//
// Values are read when a request needs one, so a new value applies without a restart:
// a variable never changes, a file is read each time, and what a command printed is
// kept for [CommandTTL].
package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/toolhost/toolhost/host"
	"github.com/toolhost/toolhost/internal/owned"
)

// Bounds of what gives a value.
const (
	CommandTTL  = time.Minute      // how long the output of a command is kept
	CommandTime = 10 * time.Second // how long a command may run
	retryAfter  = 5 * time.Second  // how long the failure of a command is kept
	maxValue    = 16<<10 + 2       // bytes of a value, with its line break
)

// Source is where the value of a secret comes from and where it may go. Exactly one of
// Env, File and Command is set.
type Source struct {
	Env     string   // a variable of the environment
	File    string   // a file that only this user can read or write
	Command []string // a program and its arguments, without a shell

	Hosts []string // names, addresses and "*.example.com"
	Place host.Place
	HTTP  bool // it may go over http too
}

// Vault has the secrets. It is safe for concurrent use.
type Vault struct {
	log     *slog.Logger
	entries map[string]*entry
}

type entry struct {
	Source
	turn chan struct{} // has room for whoever runs the command
	kept answer
}

// answer is what a command gave, until a time.
type answer struct {
	value string
	err   error
	until time.Time
}

// placeholder is a valid value.
const placeholder = "placeholder"

// Check reports what is wrong with a source. It does not read the value.
func (s Source) Check() error {
	set := 0
	for _, on := range []bool{s.Env != "", s.File != "", len(s.Command) > 0} {
		if on {
			set++
		}
	}
	if set != 1 {
		return errors.New("want exactly one of env, file and command")
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		return errors.New("command: want a program")
	}
	return s.secret(placeholder).Check()
}

func (s Source) secret(value string) host.Secret {
	return host.Secret{Value: value, Hosts: s.Hosts, Place: s.Place, HTTP: s.HTTP}
}

// New returns a Vault of the sources, by the names of the secrets. The logger gets why a
// value could not be read, and nil discards that.
func New(sources map[string]Source, log *slog.Logger) (*Vault, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &Vault{log: log, entries: map[string]*entry{}}
	for name, s := range sources {
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("secret %q: %w", name, err)
		}
		v.entries[name] = &entry{Source: s, turn: make(chan struct{}, 1)}
	}
	return v, nil
}

// Secret returns a secret. The error matches [host.ErrNoSecret] if there is none of this
// name, or its variable, its file or the output of its command is empty or missing. Any
// other error is made for an agent, and the log has the reason.
func (v *Vault) Secret(ctx context.Context, name string) (host.Secret, error) {
	e := v.entries[name]
	if e == nil {
		return host.Secret{}, host.ErrNoSecret
	}

	value, err := e.read(ctx)
	value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
	if err == nil && value == "" {
		err = host.ErrNoSecret
	}
	secret := e.secret(value)
	if err == nil {
		err = checkValue(secret)
	}
	switch {
	case err == nil:
		return secret, nil
	case ctx.Err() != nil:
		return host.Secret{}, context.Cause(ctx)
	case errors.Is(err, host.ErrNoSecret):
		return host.Secret{}, host.ErrNoSecret
	}
	v.log.Warn("a secret cannot be used", "secret", name, "error", err)
	return host.Secret{}, errors.New("it cannot be used now: the operator finds the reason in the log")
}

// checkValue refuses control characters wherever the value goes.
func checkValue(s host.Secret) error {
	if strings.ContainsFunc(s.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("the value has a line break or another control character")
	}
	return s.Check()
}

func (e *entry) read(ctx context.Context) (string, error) {
	switch {
	case e.Env != "":
		return os.Getenv(e.Env), nil
	case e.File != "":
		return readFile(e.File)
	}

	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-e.turn }()

	if time.Now().Before(e.kept.until) {
		return e.kept.value, e.kept.err
	}
	value, err := run(ctx, e.Command)
	if ctx.Err() != nil { // of the call, and says nothing about the command
		return "", ctx.Err()
	}
	keep := CommandTTL
	if err != nil || value == "" {
		keep = retryAfter
	}
	e.kept = answer{value, err, time.Now().Add(keep)}
	return value, err
}

// readFile reads a file that only this user can read or write.
func readFile(name string) (string, error) {
	info, err := os.Lstat(name) // opening a pipe would block
	if errors.Is(err, os.ErrNotExist) {
		return "", host.ErrNoSecret
	}
	if err == nil {
		err = private(name, info)
	}
	if err != nil {
		return "", err
	}

	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err = file.Stat(); err == nil {
		err = private(name, info) // it may have been replaced
	}
	if err != nil {
		return "", err
	}
	value, err := io.ReadAll(io.LimitReader(file, maxValue+1))
	return string(value), err
}

func private(name string, info os.FileInfo) error {
	if err := owned.File(name, info); err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s can be read by others: chmod 600 %[1]s", name)
	}
	return nil
}
