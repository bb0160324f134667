package compiler

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// niceness is the priority of low-priority builds.
const niceness = 10

// runConfined runs cmd with rights that are reduced before it starts: it cannot gain
// privileges, and sees only the files in dir and those the program itself is loaded from.
// The restrictions apply to the starting thread, because a child inherits from it and Go
// runs nothing between fork and exec. That thread ends with this call.
//
// The child is killed if the thread, and with it this process, ends first. started is
// called once the child runs.
func runConfined(cmd *exec.Cmd, dir string, low bool, started func()) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	ended := make(chan error, 1)
	go onNewThread(func() {
		if err := confineThread(cmd.Path, dir, low); err != nil {
			ended <- err
			return
		}
		ended <- run(cmd, started)
	})
	return <-ended
}

// onNewThread calls f on a thread that ends when f returns. The first thread of a
// process cannot end; if the scheduler picks that one, it is held until another one has
// run f.
func onNewThread(f func()) {
	runtime.LockOSThread() // never unlocked
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		onNewThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// confineThread takes from this thread the rights that a build does not
// need. Features that the kernel lacks are skipped.
func confineThread(program, dir string, low bool) error {
	if low {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) // 0 is this thread
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}

	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 { // the kernel was built or started without it
		return nil
	}
	return landlock(int(abi), program, dir)
}

// Landlock rights: see https://docs.kernel.org/userspace-api/landlock.html.
const (
	rightsRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	rightsDir  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// landlock restricts this thread to a folder, and to reading and executing the
// files that a program is loaded from.
func landlock(abi int, program, dir string) error {
	handled := unix.LandlockRulesetAttr{Handled_access_fs: handledRights(abi)}
	size := unsafe.Offsetof(handled.Handled_access_net)
	if abi >= 4 {
		handled.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Offsetof(handled.Scoped)
	}
	if abi >= 6 {
		handled.Scoped = scopes()
		size = unsafe.Offsetof(handled.Quiet_access_fs)
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(set))

	if err := allow(int(set), dir, rightsDir&handled.Handled_access_fs); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	for _, file := range loadedFrom(program) {
		if err := allow(int(set), file, rightsRead); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("landlock: %s: %w", file, err)
		}
	}

	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

// signalsInProcess is the number of the erratum because of which Linux kept a thread
// from sending signals to other threads of its process.
const signalsInProcess = 2

// scopes returns what a child cannot reach outside its sandbox: sockets in the abstract
// namespace, and other processes by signals. The starting thread is restricted as well,
// and Go's runtime sends signals between threads, so restricting signals requires a
// kernel without that erratum.
func scopes() uint64 {
	errata, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if errno != 0 || errata&(1<<(signalsInProcess-1)) == 0 {
		return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
}

// handledRights returns all rights that a landlock version knows: rights that
// no rule allows are denied.
func handledRights(abi int) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1) // the thirteen rights of version 1
	for version, right := range map[int]uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV} {
		if abi >= version {
			rights |= right
		}
	}
	return rights
}

// allow adds rights below a path to a set of rules.
func allow(set int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// loadedFrom lists the files that a program is loaded from: itself, and the
// system libraries that it is linked with. Usually it is the running program,
// so these are the files mapped here.
func loadedFrom(program string) []string {
	files := []string{program, "/etc/ld.so.cache"}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return files
	}
	defer maps.Close()

	seen := map[string]bool{}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || !strings.Contains(fields[1], "x") || !strings.HasPrefix(fields[5], "/") || seen[fields[5]] {
			continue
		}
		seen[fields[5]] = true
		files = append(files, fields[5])
	}
	return files
}

// confineProcess takes from the whole process the rights that a build does not
// need. Features that the kernel or the processor lacks are skipped.
func confineProcess(j job) error {
	if err := limitProcess(j); err != nil {
		return err
	}

	err := seccomp()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// hidden returns what the child uses beyond what its folder shows: its threads, and
// removed files that it keeps open.
func hidden(pid int) (u usage) {
	process := fmt.Sprintf("/proc/%d/", pid)
	if threads, err := os.Stat(process + "task"); err == nil {
		u.threads = int(threads.Sys().(*syscall.Stat_t).Nlink) - 2 // a folder for each
	}

	files, err := os.ReadDir(process + "fd")
	if err != nil {
		return u // it has ended
	}
	for _, f := range files {
		if info, err := os.Stat(process + "fd/" + f.Name()); err == nil && info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink == 0 {
			u.bytes += onDisk(info)
		}
	}
	return u
}
