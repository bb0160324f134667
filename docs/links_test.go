package docs_test

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Patterns of Markdown pages, and of files that name a page for their readers.
var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```[^\n]*$")
	inline  = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	label   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	linked  = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)|(?m:^\[[^\]]+\]:\s+(\S+))`)
	pageOf  = regexp.MustCompile(`\bdocs/\w+\.md(#[\w-]+)?`)
)

// TestLinks follows every relative link of every Markdown page in the repository, to its
// file and its heading.
func TestLinks(t *testing.T) {
	links := 0
	var problems []string
	for name, page := range filesOf(t, ".md") {
		page = inline.ReplaceAllString(fenced.ReplaceAllString(page, ""), "")
		for _, m := range linked.FindAllStringSubmatch(page, -1) {
			links++
			target := m[1] + m[2]
			if problem := follow(t, name, target); problem != "" {
				problems = append(problems, name+": link to "+target+": "+problem)
			}
		}
	}
	require.Empty(t, problems)
	require.Greater(t, links, 100)
}

// TestNamedPages holds that the pages exist that code, rules and scripts name.
func TestNamedPages(t *testing.T) {
	for _, ext := range []string{".go", ".yml", ".yaml", ".json", ".service"} {
		for name, text := range filesOf(t, ext) {
			for _, page := range pageOf.FindAllString(text, -1) {
				require.Empty(t, follow(t, "README.md", page), "%s names %s", name, page)
			}
		}
	}
}

// TestBrokenLinks holds that the test finds what is broken.
func TestBrokenLinks(t *testing.T) {
	for target, want := range map[string]string{
		"operating.md":                    "",
		"../README.md#try-it":             "",
		"https://example.com/none#none":   "",
		"#what-background-runs-guarantee": "",
		"none.md":                         "no such file",
		"../README.md#none":               "no such heading",
		"#none":                           "no such heading",
		"../../outside.md":                "outside the repository",
	} {
		require.Equal(t, want, follow(t, "docs/runs.md", target), target)
	}
	require.Equal(t, []string{"a-call-that-lacks-x", "the-page", "the-page-1"},
		anchors("# A call, that *lacks* `x`\n```\n# no heading\n```\n## The [page](x.md)\n## The page\n"))
}

// filesOf returns the files of the repository with an extension, by their slash-separated
// names. It leaves out folders that are hidden or made by a build.
func filesOf(t *testing.T, ext string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != ".." && (strings.HasPrefix(e.Name(), ".") || slices.Contains([]string{"dist", "node_modules", "target"}, e.Name())):
			return fs.SkipDir
		case e.IsDir() || filepath.Ext(name) != ext:
			return nil
		}
		data, err := os.ReadFile(name)
		files[strings.TrimPrefix(filepath.ToSlash(name), "../")] = string(data)
		return err
	}))
	require.NotEmpty(t, files, ext)
	return files
}

// follow returns what is wrong with a link of a page, or "".
func follow(t *testing.T, page, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}

	if u.Path != "" {
		page = path.Join(path.Dir(page), u.Path)
	}
	if !filepath.IsLocal(page) {
		return "outside the repository"
	}
	file := filepath.Join("..", filepath.FromSlash(page))
	if _, err := os.Stat(file); err != nil {
		return "no such file"
	}

	if u.Fragment == "" || path.Ext(page) != ".md" {
		return ""
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	if !slices.Contains(anchors(string(data)), u.Fragment) {
		return "no such heading"
	}
	return ""
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) (all []string) {
	times := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := label.ReplaceAllString(m[1], "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, text)

		n := times[anchor]
		times[anchor]++
		if n > 0 {
			anchor += "-" + strconv.Itoa(n)
		}
		all = append(all, anchor)
	}
	return all
}
