package rootfs_test

import (
	"fmt"
	"os"

	"github.com/tetratelabs/wazero"
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
