package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/toolhost/toolhost/internal/human"
)

// table is the tables in Markdown: of the programs that run, and of those that are refused.
func table(all []outcome) string {
	var runs, refused strings.Builder
	runs.WriteString("| runs | package, sha256 | size | as in wasmtime | compile | in wasmtime | call | in wasmtime | fuel | memory |\n" +
		"|---|---|--:|---|--:|--:|--:|--:|--:|--:|\n")
	refused.WriteString("| is refused | package, sha256 | message | why |\n|---|---|---|---|\n")
	ran, equal := 0, 0
	for _, o := range all {
		source := fmt.Sprintf("%s %s %s `%s…`", o.Registry, o.Package, o.Version, o.SHA256[:12])
		if o.Refused != "" {
			fmt.Fprintf(&refused, "| %s | %s | `%s` | %s |\n", o.Title, source, o.Refused, o.Why)
			continue
		}

		ran++
		relation := "no: " + o.Differs
		if o.equal {
			equal++
			relation = "yes"
		}
		fmt.Fprintf(&runs, "| %s: %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", o.Title, o.What, source, human.Bytes(int64(o.size)), relation,
			seconds(o.ours.compile), seconds(o.wasmtime.compile), seconds(o.ours.call), seconds(o.wasmtime.call),
			thousands(o.usage.Fuel), human.Bytes(o.usage.MemoryPeak))
	}
	return fmt.Sprintf("%s\n%d of %d programs have the same result as in wasmtime %s.\n\n%s", runs.String(), equal, ran, wasmtime.Version, refused.String())
}

// seconds is a time that was measured; a program that did not run has none.
func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
