package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/toolhost/toolhost/internal/fulltest"
)

func init() {
	acts["probe"] = func(string) error { return errors.New(probe()) }
	acts["files"] = func(string) error { return sleepAfter(manyFiles) }
	acts["many files at its end"] = func(string) error { return manyFiles() }
	acts["removed files"] = func(string) error { return sleepAfter(removedFiles) }
	acts["threads"] = func(string) error { return sleepAfter(manyThreads) }
}

// probe tries in a child what a build does not need, and returns what worked, as
// JSON. It tries each from a thread of its own: rights are those of threads.
func probe() string {
	attempts := map[string]func() error{
		"read a file":                       func() error { _, err := os.ReadFile("/etc/hostname"); return err },
		"list a folder":                     func() error { _, err := os.ReadDir("/"); return err },
		"list the parent":                   func() error { _, err := os.ReadDir(".."); return err },
		"write elsewhere":                   func() error { return os.WriteFile("../elsewhere", nil, 0o600) },
		"make a link":                       func() error { return os.Symlink("/etc", "link") },
		"see its processes":                 func() error { _, err := os.ReadDir("/proc"); return err },
		"run a program":                     func() error { return exec.Command("/proc/self/exe").Run() },
		"open a socket":                     func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
		"open a unix socket":                func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"connect":                           func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return unless(err, unix.ECONNREFUSED) },
		"signal its parent":                 func() error { return unix.Kill(os.Getppid(), 0) },
		"trace its parent":                  func() error { return unix.PtraceAttach(os.Getppid()) },
		"have the kernel signal its parent": func() error { return own(os.Getppid(), false) },
		"have the kernel signal":            func() error { return own(os.Getpid(), true) },
		"take shared memory":                func() error { return take(unix.MAP_ANON | unix.MAP_SHARED) },
		"take a stack":                      func() error { return take(unix.MAP_ANON | unix.MAP_PRIVATE | unix.MAP_GROWSDOWN) },
		"map a file":                        mapOwn,
		"raise a limit": func() error {
			return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
		},
		"change its user": func() error { return unix.Setuid(65534) },
		"mount":           func() error { return unix.Mount("none", ".", "tmpfs", 0, "") },
		"see a variable": func() error {
			if len(os.Environ()) > 0 {
				return nil
			}
			return unix.ENOENT
		},
		"write its own folder": func() error { return os.WriteFile("own", []byte("x"), 0o600) },
		"read its own folder":  func() error { _, err := os.ReadDir("."); return err },
	}

	worked := map[string]string{}
	if inherited() {
		worked["inherit a file"] = "worked"
	}
	var mu sync.Mutex
	var threads sync.WaitGroup
	for name, try := range attempts {
		threads.Go(func() {
			runtime.LockOSThread()
			err := try()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				worked[name] = "worked"
			} else if !strings.Contains(err.Error(), "not permitted") && !strings.Contains(err.Error(), "denied") {
				worked[name] = err.Error()
			}
		})
	}
	threads.Wait()
	text, _ := json.Marshal(worked)
	return string(text)
}

// own has the kernel send SIGKILL to a process once there is something to read.
func own(pid int, async bool) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
		return err
	}
	if async {
		_, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC)
		return err
	}
	_, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETOWN, pid)
	return err
}

// take takes more memory than a child may have.
func take(flags int) error {
	_, err := unix.MmapPtr(-1, 0, nil, 1600<<20, unix.PROT_READ|unix.PROT_WRITE, flags)
	return err
}

// mapOwn maps a file, which would keep its content after it is removed and closed.
func mapOwn() error {
	f, err := os.Create("mapped")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	return err
}

// sleepAfter does something, and then waits to be killed.
func sleepAfter(do func() error) error {
	if err := do(); err != nil {
		return err
	}
	time.Sleep(time.Hour)
	return nil
}

func manyFiles() error {
	for i := range maxEntries {
		if err := os.MkdirAll(fmt.Sprint("d", i%3), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(fmt.Sprintf("d%d/f%d", i%3, i), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// removedFiles writes more than a child may, to files that its folder does not show.
func removedFiles() error {
	for i := range 3 {
		f, err := os.Create(fmt.Sprint("f", i)) // which stays open
		if err != nil {
			return err
		}
		kept = append(kept, f)
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		for range maxFolder / 2 >> 20 {
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	}
	return nil
}

var kept []*os.File

func manyThreads() error {
	for range maxThreads() {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	return nil
}

// TestChildTakesTooMuch: a child that makes more files or threads than any build needs is
// killed.
func TestChildTakesTooMuch(t *testing.T) {
	for doing, want := range map[string]string{
		"files":                 "more than 64 files",
		"many files at its end": "more than 64 files",
		"removed files":         "more than 1024 MiB of files",
		"threads":               fmt.Sprintf("more than %d threads", maxThreads()),
	} {
		t.Run(doing, func(t *testing.T) {
			if doing == "removed files" {
				fulltest.Only(t, "it writes a gibibyte to the disk")
			}
			err := process(t).Build(t.Context(), t.TempDir(), []byte(doing), false)
			var limit *Error
			require.ErrorAs(t, err, &limit)
			require.Equal(t, &Error{Kind: Excess, Part: "module", Reason: "compiling it takes " + want}, limit)
		})
	}
}

// inherited reports whether a file is open that is no pipe, and none of the
// runtime's own for events.
func inherited() bool {
	for fd := 3; fd < maxFiles; fd++ {
		var s unix.Stat_t
		if unix.Fstat(fd, &s) == nil && s.Mode&unix.S_IFMT != 0 && s.Mode&unix.S_IFMT != unix.S_IFIFO {
			return true
		}
	}
	return false
}

func unless(err error, wanted error) error {
	if err != nil && strings.Contains(err.Error(), wanted.Error()) {
		return nil
	}
	return err
}

// TestChildHasNothing: a child can do nothing but compute, and write files into
// its own folder. What the kernel lacks is not asked of it.
func TestChildHasNothing(t *testing.T) {
	_, _, landlock := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if landlock != 0 || auditArch == 0 {
		t.Skip("the kernel has no landlock, or there is no list of system calls for this processor")
	}
	err := process(t).Build(t.Context(), t.TempDir(), []byte("probe"), false)
	require.Error(t, err)
	var worked map[string]string
	require.NoError(t, json.Unmarshal([]byte(err.Error()), &worked), "%v", err)
	require.Equal(t, map[string]string{
		"write its own folder": "worked", "read its own folder": "worked",
		"see a variable": "no such file or directory",
	}, worked)
}

// TestParentKeepsItsRights: what the thread that starts a child gives up is given
// up by no other.
func TestParentKeepsItsRights(t *testing.T) {
	before := rights(t)
	err := process(t).Build(t.Context(), t.TempDir(), []byte("folder"), true)
	require.ErrorContains(t, err, "the disk is full")

	var threads sync.WaitGroup
	for range 50 {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			require.Equal(t, before, rights(t))
			_, err := os.ReadDir("/")
			require.NoError(t, err)
		})
	}
	threads.Wait()
}

// rights are what the system says of those of this thread.
func rights(t *testing.T) (found []string) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "NoNewPrivs:") || strings.HasPrefix(line, "Seccomp") {
			found = append(found, line)
		}
	}
	return found
}
