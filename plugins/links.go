package plugins

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is the most links followed in a path, as on Linux.
const maxLinks = 40

// entry is a name in a folder.
type entry struct{ dir, name string }

// follow resolves an absolute path. It returns the real path, empty if there is none,
// and the entries whose change would change it: the last one, each link on the way and
// the first missing one. Real folders on the way are not among them: they move together
// with their content.
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
