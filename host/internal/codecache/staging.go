package codecache

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// stagingFolder is the folder of staging directories within Config.Dir.
	stagingFolder = "staging"
	// stagingPrefix followed by a number is the name of a staging directory.
	stagingPrefix = "toolhost-"
	// stagingAge is the age after which a staging directory counts as abandoned: no
	// build takes that long.
	stagingAge = 24 * time.Hour
)

// removeAbandoned removes the staging directories of hosts that ended without Close.
// If such a host is still running, it makes its own again when needed.
func removeAbandoned(in string) {
	all, _ := os.ReadDir(in)
	for _, e := range all {
		number, ours := strings.CutPrefix(e.Name(), stagingPrefix)
		_, notNumber := strconv.ParseUint(number, 10, 64)
		info, err := e.Info()
		if err == nil && e.IsDir() && ours && notNumber == nil && time.Since(info.ModTime()) >= stagingAge {
			_ = os.RemoveAll(filepath.Join(in, e.Name()))
		}
	}
}
