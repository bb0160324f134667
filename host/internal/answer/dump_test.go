package answer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDumpOfGo: of what Go's runtime writes when it fails, people see the message and the
// frames of the plugin, however the text arrives. All other text they see unchanged.
func TestDumpOfGo(t *testing.T) {
	const whole = `runtime: out of memory: cannot allocate 1048576-byte block (62717952 in use)
fatal error: out of memory

goroutine 7 gp=0x282c40 m=0 mp=0x1b7b40 [running]:
runtime.throw({0x3c4a9, 0xd})
	runtime/panic.go:1229 +0x3 fp=0x2fdca8 sp=0x2fdc80 pc=0x15610003
runtime.(*mcache).allocLarge(0x1e0108, 0x100000, 0x1)
	runtime/mcache.go:259 +0x1f fp=0x2fdcf8 sp=0x2fdca8 pc=0x114b001f
main.grow(...)
	p/main.go:50
main.count(0x2c0060, {{0x28e100, 0x3}})
	p/main.go:23 +0x1e fp=0x2fde38 sp=0x2fddc0 pc=0x193a001e
github.com/toolhost/toolhost/guest.(*work).run(0x2900e0)
	github.com/toolhost/toolhost@v0.0.0/guest/waiting_wasip1.go:68 +0x2 fp=0x2fdfc8 sp=0x2fdf78 pc=0x19210002
created by github.com/toolhost/toolhost/guest.startWorker in goroutine 1
	github.com/toolhost/toolhost@v0.0.0/guest/waiting_wasip1.go:34 +0x3

goroutine 2 gp=0x282380 m=nil [force gc (idle)]:
runtime.gopark(0x45b80, 0x1b6720, 0xb, 0xa, 0x1)
	runtime/proc.go:462 +0x21 fp=0x2aefa0 sp=0x2aef68 pc=0x15620021

goroutine 9 gp=0x282380 m=nil [select]:
runtime.gopark(0x45b80, 0x1b6720, 0xb, 0xa, 0x1)
	runtime/proc.go:462 +0x21 fp=0x2aefa0 sp=0x2aef68 pc=0x15620021
main.wait()
	p/main.go:9 +0x5
`
	const shown = `runtime: out of memory: cannot allocate 1048576-byte block (62717952 in use)
fatal error: out of memory

goroutine 7 gp=0x282c40 m=0 mp=0x1b7b40 [running]:
main.grow(...)
	p/main.go:50
main.count(0x2c0060, {{0x28e100, 0x3}})
	p/main.go:23 +0x1e
goroutine 9 gp=0x282380 m=nil [select]:
main.wait()
	p/main.go:9 +0x5
[13 lines about Go's runtime are left out]
`
	long := strings.Repeat("x", maxDumpLine+1)
	for name, c := range map[string]struct{ said, want string }{
		"out of memory":           {whole, shown},
		"no dump":                 {"goroutine 2 [idle]:\nruntime.x()\n\tx.go:1\n", "goroutine 2 [idle]:\nruntime.x()\n\tx.go:1\n"},
		"another program's error": {"fatal error: x.h: no such file\n\nstopped\nby", "fatal error: x.h: no such file\n\nstopped\nby"},
		"a line that is no frame": {"fatal error: x\n\ngoroutine 1 [idle]:\n" + long + "\nby", "fatal error: x\n\n" + "[1 lines about Go's runtime are left out]\n" + long + "\nby"},
		"a panic of package guest": {"panic: no\ngoroutine 7 [running]:\ngithub.com/toolhost/toolhost/guest.(*Call).recover(0x2c0060)\n\tguest/host.go:74 +0x5\npanic({0x31d40})\n\truntime/panic.go:860 +0x1c\nmain.stat(0x2c0060)\n\tmain.go:38 +0x78\n",
			"panic: no\ngoroutine 7 [running]:\nmain.stat(0x2c0060)\n\tmain.go:38 +0x78\n[4 lines about Go's runtime are left out]\n"},
		"text after a stack":          {"panic: no\ngoroutine 7 [running]:\nmain.f()\n\tmain.go:3\nit\ngoes\non\n", "panic: no\ngoroutine 7 [running]:\nmain.f()\n\tmain.go:3\nit\ngoes\non\n"},
		"an error that no line names": {"no fatal error: x\n\nruntime.x()\n", "no fatal error: x\n\nruntime.x()\n"},
	} {
		for _, size := range []int{1, 7, len(c.said)} {
			t.Run(name, func(t *testing.T) {
				var d dump
				var out []byte
				for p := []byte(c.said); len(p) > 0; p = p[min(len(p), size):] {
					out = append(out, d.shorten(p[:min(len(p), size)])...)
				}
				require.Equal(t, c.want, string(append(out, d.end()...)))
			})
		}
	}
}

// TestOutputAfterPanic: what a plugin writes after a panic that it has recovered from is
// shown at once.
func TestOutputAfterPanic(t *testing.T) {
	var d dump
	d.shorten([]byte("panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:5 +0x1d\n"))
	require.Equal(t, "step 1\n", string(d.shorten([]byte("step 1\n"))))
	require.Equal(t, "working 50%\r", string(d.shorten([]byte("working 50%\r"))))
	require.Empty(t, d.end())
}
