// Package docs writes what a benchmark has measured into a page of docs.
package docs

import (
	"fmt"
	"os"
	"strings"
)

// Section is a text between the lines <!-- bench/NAME --> and <!-- bench/NAME ends -->.
func Section(name, text string) string {
	return fmt.Sprintf("<!-- bench/%[1]s -->\n%[2]s<!-- bench/%[1]s ends -->\n", name, text)
}

// Replace replaces the text of the section of a page that has that name.
func Replace(file, name, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end, _ := strings.Cut(Section(name, "\x00"), "\x00")
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s: expected %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+Section(name, text)+after), 0o644)
}
