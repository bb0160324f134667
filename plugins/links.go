package plugins

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many links a path may lead over: as many as Linux follows.
const maxLinks = 40

// entry is a name in a folder.
type entry struct{ dir, name string }

// follow follows a path that is absolute. It returns where it leads, empty if it
// leads nowhere, and the entries that would have to change for it to lead
// elsewhere: its last one, each link on the way, and the first that is not there.
// A folder on the way that is no link is not among them: it is moved with what
// is in it.
func follow(path string) (real string, turns []entry) {
	volume := filepath.VolumeName(path) + string(filepath.Separator)
	real = volume
	rest := parts(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			real = filepath.Dir(real)
			continue
		}

		at := filepath.Join(real, name)
		info, err := os.Lstat(at)
		link := err == nil && info.Mode()&os.ModeSymlink != 0
		if err != nil || link || len(rest) == 0 {
			turns = append(turns, entry{real, name})
		}
		if !link {
			real = at
			if err != nil {
				return "", turns
			}
			continue
		}

		target, err := os.Readlink(at)
		if links++; err != nil || links > maxLinks {
			return "", turns
		}
		if filepath.IsAbs(target) {
			real = filepath.VolumeName(target) + string(filepath.Separator)
		}

		rest = append(parts(target), rest...)
	}

	return real, turns
}

// parts are the names of a path, without its root.
func parts(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
}
