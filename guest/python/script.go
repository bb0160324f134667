package python

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

var (
	// ErrNoTool means that the project has no tool.py.
	ErrNoTool = errors.New("a plugin in Python begins in tool.py, which is not there")
	// ErrImpure means that a wheel has compiled code, which the sandbox cannot run.
	ErrImpure = errors.New("not a wheel of pure Python: its name has to end in -none-any.whl")
	// ErrTwice means that two parts of the project have a file with the same name.
	ErrTwice = errors.New("is there twice")
	// ErrLarge means that the project has more than 64 MiB of files.
	ErrLarge = fmt.Errorf("the project has more than %d MiB of files", maxScript>>20)
)

const (
	tool      = "tool.py"
	wheels    = "wheels"
	maxScript = 64 << 20 // bytes of all files: a bound for broken wheels
)

// Script returns the script of a project: the text of tool.py if there is nothing else,
// otherwise an archive. The archive contains tool.py, the other modules, the packages
// with all their files, and the unpacked wheels of the folder wheels. Tests (test_*.py, a
// folder tests) and names that begin with a dot are left out. The same files always
// produce the same bytes.
//
// The errors are [ErrNoTool], [ErrImpure], [ErrTwice] and [ErrLarge], each with the name of the
// file, and the errors that occur while the project is read.
func Script(project fs.FS) ([]byte, error) {
	files := archive{}
	if err := files.addModules(project); err != nil {
		return nil, err
	}
	if files[tool] == nil {
		return nil, ErrNoTool
	}
	found, err := fs.Glob(project, wheels+"/*.whl")
	if err != nil {
		return nil, err
	}
	for _, name := range found {
		if err := files.addWheel(project, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(files) == 1 {
		return files[tool], nil
	}
	return files.zip()
}

// archive maps names to files.
type archive map[string][]byte

func (a archive) add(fsys fs.FS, name string) error {
	if _, twice := a[name]; twice {
		return fmt.Errorf("%s: %w", name, ErrTwice)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()

	left := int64(maxScript)
	for _, data := range a {
		left -= int64(len(data))
	}
	data, err := io.ReadAll(io.LimitReader(f, left+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > left {
		return fmt.Errorf("%s: %w", name, ErrLarge)
	}
	a[name] = data
	return nil
}

// addModules adds the modules of the project's folder, and its packages: folders that
// contain a module.
func (a archive) addModules(project fs.FS) error {
	entries, err := fs.ReadDir(project, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case passedOver(name) || name == wheels || name == "tests":
		case !e.IsDir() && path.Ext(name) == ".py":
			err = a.add(project, name)
		case e.IsDir() && isPackage(project, name):
			err = a.addPackage(project, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isPackage(project fs.FS, dir string) bool {
	found, err := fs.Glob(project, dir+"/*.py")
	return err == nil && len(found) > 0
}

func (a archive) addPackage(project fs.FS, dir string) error {
	return fs.WalkDir(project, dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case passedOver(e.Name()) && e.IsDir():
			return fs.SkipDir
		case passedOver(e.Name()) || !e.Type().IsRegular():
			return nil
		}
		return a.add(project, name)
	})
}

// passedOver reports whether no plugin needs a file of that name.
func passedOver(name string) bool {
	return name[0] == '.' || name == "__pycache__" || path.Ext(name) == ".pyc" || strings.HasPrefix(name, "test_")
}

func (a archive) addWheel(project fs.FS, name string) error {
	if !strings.HasSuffix(name, "-none-any.whl") {
		return ErrImpure
	}
	data, err := fs.ReadFile(project, name)
	if err != nil {
		return err
	}
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, f := range r.File {
		// Skip folders, which have no data, names that leave the archive, and names that
		// Python's zip reader cuts off at a zero byte.
		if !fs.ValidPath(f.Name) || strings.ContainsRune(f.Name, 0) {
			continue
		}
		if err := a.add(r, f.Name); err != nil {
			return err
		}
	}
	return nil
}

func (a archive) zip() ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(a)) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err == nil {
			_, err = f.Write(a[name])
		}
		if err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
