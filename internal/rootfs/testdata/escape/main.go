// Command escape is a hostile WASI guest. It tries every known way out of its
// folder, and prints one line "attempt: outcome" for each.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"
)

//go:wasmimport wasi_snapshot_preview1 path_open
//go:noescape
func pathOpen(dir int32, look uint32, path unsafe.Pointer, size uint32, oflags uint32, rights, inherit uint64, fdflags uint32, fd unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_symlink
//go:noescape
func pathSymlink(old unsafe.Pointer, oldSize uint32, dir int32, path unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_link
//go:noescape
func pathLink(oldDir int32, look uint32, old unsafe.Pointer, oldSize uint32, dir int32, path unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_rename
//go:noescape
func pathRename(oldDir int32, old unsafe.Pointer, oldSize uint32, dir int32, path unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_unlink_file
//go:noescape
func pathUnlink(dir int32, path unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi_snapshot_preview1 path_readlink
//go:noescape
func pathReadlink(dir int32, path unsafe.Pointer, size uint32, buf unsafe.Pointer, bufSize uint32, used unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_get
//go:noescape
func pathStat(dir int32, look uint32, path unsafe.Pointer, size uint32, buf unsafe.Pointer) uint32

//go:wasmimport wasi_snapshot_preview1 path_filestat_set_times
//go:noescape
func pathSetTimes(dir int32, look uint32, path unsafe.Pointer, size uint32, atim, mtim uint64, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_filestat_set_times
//go:noescape
func fdSetTimes(fd int32, atim, mtim uint64, flags uint32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_allocate
//go:noescape
func fdAllocate(fd int32, offset, size uint64) uint32

//go:wasmimport wasi_snapshot_preview1 fd_renumber
//go:noescape
func fdRenumber(from, to int32) uint32

//go:wasmimport wasi_snapshot_preview1 fd_close
//go:noescape
func fdClose(fd int32) uint32

// preopen is the folder: the first descriptor after the standard ones.
const preopen = 3

const (
	follow = 1

	create   = 1
	wantDir  = 2
	truncate = 8

	allRights = 1<<30 - 1
	readRight = 1 << 1
)

var names = map[uint32]string{
	0: "ok", 2: "EACCES", 8: "EBADF", 20: "EEXIST", 28: "EINVAL", 29: "EIO", 31: "EISDIR", 32: "ELOOP", 37: "ENAMETOOLONG",
	44: "ENOENT", 52: "ENOSYS", 54: "ENOTDIR", 55: "ENOTEMPTY", 58: "ENOTSUP", 63: "EPERM", 69: "EROFS",
}

func report(what string, errno uint32) {
	name, ok := names[errno]
	if !ok {
		name = fmt.Sprint("errno ", errno)
	}
	fmt.Printf("%s: %s\n", what, name)
}

func ptr(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

func open(dir int32, path string, oflags uint32, rights uint64) (int32, uint32) {
	var fd int32
	p, n := ptr(path)
	errno := pathOpen(dir, follow, p, n, oflags, rights, 0, 0, unsafe.Pointer(&fd))
	return fd, errno
}

func main() {
	raw(os.Args[1])
	descriptors()
	standardLibrary()
	limits()
}

// raw passes paths that no standard library would let through.
func raw(host string) {
	paths := []string{
		"../secret", "/etc/passwd", host + "/secret", "sub/../../secret", "up/secret", "absdir/secret", "sub/back/secret",
		"rel", "abs", "chain1", "inout", "new", "a\x00b", strings.Repeat("sub/../", 500) + "../secret", strings.Repeat("x", 5000),
	}
	for _, path := range paths {
		label := strings.ReplaceAll(path, "\x00", "NUL")
		if strings.HasPrefix(path, host) {
			label = "HOST/secret"
		}
		label = label[:min(len(label), 20)]
		p, n := ptr(path)
		_, errno := open(preopen, path, 0, readRight)
		report("read "+label, errno)
		_, errno = open(preopen, path, create|truncate, allRights)
		report("create "+label, errno)
		_, errno = open(preopen, path, wantDir, readRight)
		report("dir "+label, errno)
		var stat [64]byte
		report("stat "+label, pathStat(preopen, follow, p, n, unsafe.Pointer(&stat)))
		var buf [256]byte
		var used uint32
		report("readlink "+label, pathReadlink(preopen, p, n, unsafe.Pointer(&buf), 256, unsafe.Pointer(&used)))
		report("times "+label, pathSetTimes(preopen, follow, p, n, 0, 0, 1|4))
		q, m := ptr("taken")
		report("link "+label, pathLink(preopen, 0, p, n, preopen, q, m))
		report("symlink "+label, pathSymlink(p, n, preopen, q, m))
	}
	for _, path := range []string{"../secret", "up/secret", "absdir/secret"} {
		p, n := ptr(path)
		q, m := ptr("taken")
		report("unlink "+path, pathUnlink(preopen, p, n))
		report("rename in "+path, pathRename(preopen, p, n, preopen, q, m))
		q, m = ptr("file")
		report("rename out "+path, pathRename(preopen, q, m, preopen, p, n))
	}
}

// descriptors starts from directories other than the folder.
func descriptors() {
	dot, errno := open(preopen, ".", wantDir, readRight)
	report("open .", errno)
	sub, errno := open(preopen, "sub", wantDir, readRight)
	report("open sub", errno)
	_, errno = open(preopen, "up", wantDir, readRight)
	report("open up", errno)
	_, errno = open(dot, "file", 0, readRight)
	report("file from .", errno)
	_, errno = open(dot, "../secret", 0, readRight)
	report("out from .", errno)
	_, errno = open(sub, "../file", 0, readRight)
	report("up from sub", errno)
	_, errno = open(sub, "back/secret", 0, readRight)
	report("back from sub", errno)
	p, n := ptr("sub")
	q, m := ptr("sub2")
	report("rename under sub", pathRename(preopen, p, n, preopen, q, m))
	_, errno = open(sub, "back/secret", 0, readRight)
	report("back from renamed sub", errno)
	report("renumber over the folder", fdRenumber(sub, preopen))
	report("renumber the folder", fdRenumber(preopen, sub))
	report("times of the folder", fdSetTimes(preopen, 0, 0, 1|4))
	report("close the folder", fdClose(dot))
}

// standardLibrary does what an honest guest does; it must work.
func standardLibrary() {
	result := func(what string, err error) {
		outcome := "ok"
		if err != nil {
			outcome = err.Error()
		}
		fmt.Printf("%s: %s\n", what, outcome)
	}
	b, err := os.ReadFile("/work/inlink")
	result("read through an inner link", err)
	fmt.Printf("content: %s\n", b)
	result("write", os.WriteFile("/work/out", []byte("written"), 0o600))
	f, err := os.OpenFile("/work/out", os.O_WRONLY|os.O_APPEND, 0)
	result("open to append", err)
	_, err = io.WriteString(f, " more")
	result("append", err)
	result("close", f.Close())
	result("mkdirs", os.MkdirAll("/work/x/y", 0o700))
	result("rename", os.Rename("/work/out", "/work/x/y/out"))
	entries, err := os.ReadDir("/work/x/y")
	result("list", err)
	fmt.Printf("entries: %v\n", entries)
	result("remove all", os.RemoveAll("/work/x"))
	_, err = os.ReadFile("/work/fifo")
	result("fifo", err)
	_, err = os.ReadFile("/etc/passwd")
	result("outside the mount", err)
}

func limits() {
	f, err := os.Create("/work/big")
	if err != nil {
		fmt.Println("create:", err)
		return
	}
	report("allocate", fdAllocate(int32(f.Fd()), 0, 1<<50))
	_, err = f.Write(make([]byte, 1<<20))
	fmt.Println("write a mebibyte:", err)
	var opened int
	for ; opened < 1000; opened++ {
		if _, errno := open(preopen, "file", 0, readRight); errno != 0 {
			break
		}
	}
	fmt.Println("opened no more than 100:", opened <= 100)
}
