package rootfs_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"

	"github.com/toolhost/toolhost/internal/rootfs"
)

// A folder mounted for one call: the guest sees it as /work.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "granted")
	if err != nil {
		fmt.Println(err)
		return
	}

	defer os.RemoveAll(dir)

	mount, err := rootfs.Open(dir, rootfs.Options{MaxBytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}

	defer mount.Close() // after the guest is gone: it may have left files open

	config := wazero.NewModuleConfig().WithFSConfig(
		wazero.NewFSConfig().(sysfs.FSConfig).WithSysFSMount(mount, "/work"))
	_ = config // instantiate the guest with it
}

func ExampleFS_Err() {
	dir, err := os.MkdirTemp("", "granted")
	if err != nil {
		fmt.Println(err)
		return
	}

	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "note"), nil, 0o600); err != nil {
		fmt.Println(err)
		return
	}
	mount, err := rootfs.Open(dir, rootfs.Options{MaxBytes: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}

	defer mount.Close()

	file, _ := mount.OpenFile("note", sys.O_WRONLY, 0)
	_, errno := file.Write(make([]byte, 1001))
	fmt.Println("guest sees:", errno)
	fmt.Println("host sees:", mount.Err())
	// Output:
	// guest sees: input/output error
	// host sees: mount reached its limit of written bytes: 1000
}
