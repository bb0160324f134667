package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// count returns how many lines or bytes head and tail print: -n 5, -5 or -c
// 100.
func (c *command) count() (n int, word string, bytes bool, files []string, err error) {
	if len(c.args) > 1 && len(c.args[1]) > 1 && c.args[1][0] == '-' && c.args[1][1] >= '0' && c.args[1][1] <= '9' {
		c.args = append([]string{c.args[0], "-n", c.args[1][1:]}, c.args[2:]...)
	}
	opts, files, err := c.options("n:c:q")
	if err != nil {
		return 0, "", false, nil, err
	}
	word = cmp.Or(opts['c'], opts['n'], "10")
	n, err = strconv.Atoi(strings.TrimPrefix(word, "+"))
	if err != nil {
		return 0, "", false, nil, fmt.Errorf("%q is not a number", word)
	}
	return n, word, opts['c'] != "", files, nil
}

func head(c *command) error {
	n, _, bytes, files, err := c.count()
	if err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("a number below 0 is not supported")
	}
	return c.each(files, func(name string, r io.Reader) error {
		if err := c.title(name, files); err != nil {
			return err
		}
		if bytes {
			_, err := io.CopyN(c.out, r, int64(n))
			if err == io.EOF {
				return nil
			}
			return err
		}
		scanner := scan(r)
		for left := n; left > 0 && scanner.Scan(); left-- {
			if err := c.print(scanner.Text()); err != nil {
				return err
			}
		}
		return scanner.Err()
	})
}

// title prints the title of a file, if there are several.
func (c *command) title(name string, files []string) error {
	if len(files) < 2 {
		return nil
	}
	return c.print("==> " + name + " <==")
}

func tail(c *command) error {
	n, word, bytes, files, err := c.count()
	if err != nil {
		return err
	}
	n = max(n, -n)
	return c.each(files, func(name string, r io.Reader) error {
		if err := c.title(name, files); err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if bytes {
			_, err := c.out.Write(data[max(0, len(data)-n):])
			return err
		}
		lines := strings.SplitAfter(string(data), "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		from := max(0, len(lines)-n)
		if word[0] == '+' {
			from = min(max(n-1, 0), len(lines))
		}
		_, err = io.WriteString(c.out, strings.Join(lines[from:], ""))
		return err
	})
}

func wc(c *command) error {
	opts, files, err := c.options("lwcm")
	if err != nil {
		return err
	}
	if len(opts) == 0 {
		opts = map[byte]string{'l': "true", 'w': "true", 'c': "true"}
	}
	total := map[byte]int{}
	show := func(counts map[byte]int, name string) error {
		var words []string
		for _, letter := range []byte("lwcm") {
			if opts[letter] != "" {
				words = append(words, strconv.Itoa(counts[letter]))
			}
		}
		if name != "-" {
			words = append(words, name)
		}
		return c.print(strings.Join(words, " "))
	}

	err = c.each(files, func(name string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		text := string(data)
		counts := map[byte]int{'l': strings.Count(text, "\n"), 'w': len(strings.Fields(text)), 'c': len(data), 'm': utf8.RuneCountInString(text)}
		for letter, n := range counts {
			total[letter] += n
		}
		return show(counts, name)
	})
	if err != nil || len(files) < 2 {
		return err
	}
	return show(total, "total")
}

// sorted implements sort. Options: -n, -r, -u, -f, -t SEPARATOR, -k FIELD or -k
// FIELD,FIELD.
func sorted(c *command) error {
	opts, files, err := c.options("nrufbt:k:")
	if err != nil {
		return err
	}
	field, until, byNumber, backwards := 0, 1<<30, opts['n'] != "", opts['r'] != ""
	if k := opts['k']; k != "" {
		byNumber, backwards = byNumber || strings.Contains(k, "n"), backwards || strings.Contains(k, "r")
		first, last, bounded := strings.Cut(strings.NewReplacer("n", "", "r", "").Replace(k), ",")
		field, err = strconv.Atoi(first)
		if bounded && err == nil {
			until, err = strconv.Atoi(last)
		}
		if err != nil || field < 1 || until < field {
			return fmt.Errorf("-k %s is not supported: expected numbers of fields, such as 2 or 2,2", k)
		}
	}
	key := func(line string) string {
		if field > 0 {
			parts := strings.Fields(line)
			if opts['t'] != "" {
				parts = strings.Split(line, opts['t'])
			}
			line = strings.Join(parts[min(field-1, len(parts)):min(until, len(parts))], " ")
		}
		if opts['f'] != "" {
			line = strings.ToLower(line)
		}
		return line
	}
	compare := func(a, b string) int {
		if byNumber {
			return cmp.Compare(number(key(a)), number(key(b)))
		}
		return strings.Compare(key(a), key(b))
	}

	var all []string
	if err := c.lines(files, func(line string) (bool, error) { all = append(all, line); return true, nil }); err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b string) int {
		order := compare(a, b)
		if order == 0 && opts['u'] == "" {
			order = strings.Compare(a, b)
		}
		if backwards {
			return -order
		}
		return order
	})
	if opts['u'] != "" {
		all = slices.CompactFunc(all, func(a, b string) bool { return compare(a, b) == 0 })
	}
	for _, line := range all {
		if err := c.print(line); err != nil {
			return err
		}
	}
	return nil
}

// number returns the number at the beginning of a text, or 0.
func number(text string) float64 {
	text = strings.TrimSpace(text)
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.' || end == 0 && text[end] == '-') {
		end++
	}
	n, _ := strconv.ParseFloat(text[:end], 64)
	return n
}

func uniq(c *command) error {
	opts, files, err := c.options("cdui")
	if err != nil {
		return err
	}
	last, count := "", 0
	flush := func() error {
		if count == 0 || opts['d'] != "" && count == 1 || opts['u'] != "" && count > 1 {
			return nil
		}
		if opts['c'] != "" {
			return c.print(fmt.Sprintf("%7d %s", count, last))
		}
		return c.print(last)
	}
	err = c.lines(files, func(line string) (bool, error) {
		if count > 0 && (line == last || opts['i'] != "" && strings.EqualFold(line, last)) {
			count++
			return true, nil
		}
		err := flush()
		last, count = line, 1
		return true, err
	})
	if err != nil {
		return err
	}
	return flush()
}

// cut prints fields (-f, with -d) or characters (-c) of each line, such as
// 1,3-5,7-.
func cut(c *command) error {
	opts, files, err := c.options("d:f:c:b:s")
	if err != nil {
		return err
	}
	chosen, err := ranges(cmp.Or(opts['f'], opts['c'], opts['b']))
	if err != nil {
		return err
	}
	separator := cmp.Or(opts['d'], "\t")
	if opts['f'] == "" {
		separator = ""
	}
	return c.lines(files, func(line string) (bool, error) {
		if separator != "" && !strings.Contains(line, separator) {
			if opts['s'] != "" {
				return true, nil
			}
			return true, c.print(line)
		}
		var kept []string
		for i, part := range strings.Split(line, separator) {
			if chosen(i + 1) {
				kept = append(kept, part)
			}
		}
		return true, c.print(strings.Join(kept, separator))
	})
}

// ranges returns a function that reports whether a number is in a list such as
// 1,3-5,7-.
func ranges(list string) (func(n int) bool, error) {
	var all [][2]int
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(cmp.Or(from, "1"))
		high := low
		if isRange {
			high = 1 << 30
			if to != "" && err == nil {
				high, err = strconv.Atoi(to)
			}
		}
		if err != nil || part == "" || part == "-" || low < 1 {
			return nil, fmt.Errorf("invalid list %q: expected -f or -c and numbers, such as 1,3-5", list)
		}
		all = append(all, [2]int{low, high})
	}
	return func(n int) bool {
		return slices.ContainsFunc(all, func(r [2]int) bool { return r[0] <= n && n <= r[1] })
	}, nil
}

// tr translates, deletes (-d) or squeezes (-s) characters. With -c, it applies
// to all other characters.
func tr(c *command) error {
	opts, sets, err := c.options("dsc")
	if err != nil {
		return err
	}
	if len(sets) == 0 || len(sets) == 1 && opts['d'] == "" && opts['s'] == "" {
		return fmt.Errorf("expected two sets of characters")
	}
	from, to := set(sets[0]), []rune(nil)
	if len(sets) > 1 {
		to = set(sets[1])
	}
	data, err := io.ReadAll(c.in)
	if err != nil {
		return err
	}

	var out strings.Builder
	var last rune = -1
	for _, r := range string(data) {
		i := slices.Index(from, r)
		if opts['c'] != "" {
			if i >= 0 {
				i = -1
			} else {
				i = len(from) // the last of the second set
			}
		}
		switch {
		case i < 0:
		case opts['d'] != "":
			continue
		case len(to) > 0:
			r = to[min(i, len(to)-1)]
		}
		if opts['s'] != "" && r == last && i >= 0 {
			continue
		}
		last = r
		out.WriteRune(r)
	}
	_, err = io.WriteString(c.out, out.String())
	return err
}

var classes = strings.NewReplacer(
	"[:lower:]", "a-z", "[:upper:]", "A-Z", "[:digit:]", "0-9", "[:alpha:]", "A-Za-z", "[:alnum:]", "A-Za-z0-9",
	"[:space:]", " \t\n\r\v\f", "[:punct:]", "!-/:-@[-`{-~", `\n`, "\n", `\t`, "\t", `\r`, "\r", `\\`, `\`,
)

// set returns the characters in a set such as a-z.
func set(text string) (all []rune) {
	runes := []rune(classes.Replace(text))
	for i := 0; i < len(runes); i++ {
		if i+2 < len(runes) && runes[i+1] == '-' && runes[i] <= runes[i+2] && runes[i+2]-runes[i] < 1<<16 {
			for r := runes[i]; r <= runes[i+2]; r++ {
				all = append(all, r)
			}
			i += 2
			continue
		}
		all = append(all, runes[i])
	}
	return all
}
