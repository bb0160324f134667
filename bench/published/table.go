package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/human"
)

// table is the tables in Markdown: of the programs that run, and of those that are refused.
func table(all []program, usages []abi.Usage) string {
	var runs, refused strings.Builder
	runs.WriteString("| runs | package, sha256 | args | fuel | CPU | memory |\n|---|---|---|--:|--:|--:|\n")
	refused.WriteString("| is refused | package, sha256 | message | why |\n|---|---|---|---|\n")
	for i, p := range all {
		source := fmt.Sprintf("%s %s %s `%s…`", p.Registry, p.Package, p.Version, p.SHA256[:12])
		if p.Refused != "" {
			fmt.Fprintf(&refused, "| %s | %s | `%s` | %s |\n", p.Title, source, p.Refused, p.Why)
			continue
		}
		u := usages[i]
		fmt.Fprintf(&runs, "| %s: %s | %s | `%s` | %s | %s | %s |\n", p.Title, p.What, source, p.words(),
			thousands(u.Fuel), u.CPU.Round(100*time.Microsecond), human.Bytes(u.MemoryPeak))
	}
	return runs.String() + "\n" + refused.String()
}

// words returns the words of the program's command line.
func (p program) words() string {
	args, _ := p.Command["args"].([]any)
	all := make([]string, len(args))
	for i, word := range args {
		all[i] = fmt.Sprint(word)
	}
	return strings.Join(all, " ")
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
