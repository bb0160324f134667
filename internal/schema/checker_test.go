package schema

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// doubling is a schema of n definitions that each refer twice to the next, by
// some keyword, and the last of which is leaf.
func doubling(n int, keyword, leaf, more string) string {
	defs := []string{fmt.Sprintf(`"d%d":%s`, n, leaf)}
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"d%d":{"%s":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, keyword, i+1, i+1))
	}
	return fmt.Sprintf(`{%s"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{%s}}`, more, strings.Join(defs, ","))
}

// numbers are n numbers in a list, each with something behind it.
func numbers(n int, behind string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%d%s", i+1, behind)
	}
	return "[" + b.String()[1:] + "]"
}

// TestCheckIsBounded: what would take minutes or ages is refused within seconds.
func TestCheckIsBounded(t *testing.T) {
	text := `{"a":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, c := range map[string]struct{ schema, document, fits string }{
		"references":               {doubling(40, "allOf", `{"type":"integer"}`, ""), `{"a":1}`, `{}`},
		"references of draft 7":    {doubling(40, "allOf", `{"type":"integer"}`, `"$schema":"http://json-schema.org/draft-07/schema#",`), `{"a":1}`, `{}`},
		"references of draft 4":    {doubling(40, "allOf", `{"type":"integer"}`, `"$schema":"http://json-schema.org/draft-04/schema#",`), `{"a":1}`, `{}`},
		"references that fail":     {doubling(40, "anyOf", `{"type":"integer"}`, ""), `{"a":"x"}`, `{}`},
		"a list of numbers":        {`{"items":{"enum":` + numbers(1000, "") + `}}`, numbers(100_000, ".5"), `[1,2,3]`},
		"a list of long numbers":   {`{"items":{"enum":` + numbers(1000, "e300") + `}}`, numbers(10_000, "e-300"), `[1e300]`},
		"a list of lists":          {`{"items":{"enum":[` + numbers(1000, "") + `]}}`, `[` + strings.Repeat(numbers(1000, "")+",", 200) + `1]`, `[` + numbers(1000, "") + `]`},
		"a pattern that fails":     {doubling(12, "anyOf", `{"pattern":"^x*y$"}`, ""), text, `{"a":"xy"}`},
		"a large pattern":          {`{"properties":{"a":{"pattern":"(x?x?x?x?x?x?x?x?x?x?){100}y"}}}`, text, `{"a":"xy"}`},
		"patterns for names":       {`{"patternProperties":{"(x?x?x?x?x?x?x?x?x?x?){100}y":true}}`, `{"` + strings.Repeat("x", 1<<20) + `":1}`, `{"xy":1}`},
		"patterns for other names": {`{"propertyNames":{"pattern":"(x?x?x?x?x?x?x?x?x?x?){100}y"}}`, `{"` + strings.Repeat("x", 1<<20) + `":1}`, `{"xy":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(c.schema))
			require.NoError(t, err)
			found := s.Check(json.RawMessage(c.document))
			require.Len(t, found, 1)
			require.Equal(t, errLong.Error(), found[0].Message)
			synctest.Test(t, func(t *testing.T) { // whatever time it takes
				require.Empty(t, s.Check(json.RawMessage(c.fits)), "the next check starts afresh")
			})
		})
	}
}

// TestLargeDocumentsFit: what people do with a megabyte is not refused.
func TestLargeDocumentsFit(t *testing.T) {
	row := `{"id":123456,"kind":3,"tags":["a","b"],"ok":true,"score":-1.5e3},`
	var zones []string
	for i := range 600 {
		zones = append(zones, fmt.Sprintf(`"Zone/%d"`, i))
	}
	for name, c := range map[string]struct{ schema, document string }{
		"numbers": {`{"items":{"type":"integer"}}`, `[` + strings.Repeat("12345,", 1<<20/6) + `1]`},
		"rows": {`{"items":{"type":"object","properties":{"kind":{"enum":[1,2,3,4,5,6,7,8]},"tags":{"items":{"enum":["a","b"]}},"score":{"type":"number"}}}}`,
			`[` + strings.Repeat(row, 1<<20/len(row)) + `{}]`},
		"base64": {`{"properties":{"data":{"pattern":"^[A-Za-z0-9+/]*={0,2}$"}}}`, `{"data":"` + strings.Repeat("abCD", 1<<20) + `="}`},
		"zones":  {`{"items":{"enum":[` + strings.Join(zones, ",") + `]}}`, `[` + strings.Repeat(`"Zone/599",`, 1<<18/11) + `"Zone/0"]`},
		"any":    {`{"properties":{"data":true}}`, `{"data":[` + strings.Repeat("1,", 1<<20) + `1]}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(json.RawMessage(c.schema))
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) { // whatever time it takes: the steps count
				require.Empty(t, s.Check(json.RawMessage(c.document)))
			})
		})
	}
}

// TestListsCost: what an object lists is paid for by those that refer to it.
func TestListsCost(t *testing.T) {
	for keyword, list := range map[string]string{"enum": numbers(1000, ""), "const": numbers(1000, "")} {
		s, err := Compile(json.RawMessage(`{"items":{"anyOf":[{"` + keyword + `":` + list + `},{"type":"integer"}]}}`))
		require.NoError(t, err)
		require.Empty(t, s.Check(json.RawMessage(`[-1,-2]`)))
		c := s.checker()
		const objects, each = 1 + 2 + 2, 1 + 100_001/2000 // the root, and those of the items but for the list
		require.Equal(t, maxSteps-objects*each, c.left, keyword)
	}
}

// TestTimeIsBounded: a check whose steps take too long ends soon after its time.
func TestTimeIsBounded(t *testing.T) {
	c := &checker{left: maxSteps, until: time.Now().Add(time.Hour)}
	for range 1000 {
		c.spend(1)
	}
	c.until = time.Now().Add(-time.Nanosecond)
	require.PanicsWithValue(t, errLong, func() {
		for range 64 {
			c.spend(1)
		}
	})
}

// TestProblemsAreShort: a report does not repeat a megabyte of the document.
func TestProblemsAreShort(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"additionalProperties":{"format":"email"}}`))
	require.NoError(t, err)
	name := strings.Repeat("é", 1<<16)
	found := s.Check(json.RawMessage(`{"` + name + `":"` + name + `"}`))
	require.Len(t, found, 1)
	for _, p := range found {
		require.LessOrEqual(t, len(p.Pointer), maxText+len("…"))
		require.LessOrEqual(t, len(p.Message), maxText+len("…"))
		require.True(t, strings.HasPrefix(p.Pointer, "/éé") && strings.HasSuffix(p.Pointer, "é…"), p.Pointer)
	}
}

// TestFewLargeDocuments: large documents are read a few at a time, and small ones
// do not wait for them.
func TestFewLargeDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := reading
		defer func() { reading = before }()
		reading = make(chan struct{}, 1)
		s, err := Compile(json.RawMessage(`{"properties":{"n":{"x-secret":true}}}`))
		require.NoError(t, err)
		document := json.RawMessage(`{"n":"` + strings.Repeat("x", large) + `"}`)
		reading <- struct{}{} // somebody reads one

		ended := 0
		for _, read := range []func(){func() { s.Check(document) }, func() { s.Public(document) }} {
			go func() { read(); ended++ }()
			synctest.Wait()
			s.Check(json.RawMessage(`{"n":1}`))
			require.Zero(t, ended)
			<-reading
			synctest.Wait()
			require.Equal(t, 1, ended)
			reading <- struct{}{}
			ended = 0
		}
	})
}

// TestCheckConcurrently: checks that overlap do not wait for each other, nor
// does a schema take more than it has a use for.
func TestCheckConcurrently(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`))
	require.NoError(t, err)
	if runtime.GOMAXPROCS(0) > 1 {
		one, other := s.checker(), s.checker()
		require.NotSame(t, one, other)
		s.idle <- one
		s.idle <- other
	}

	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				if found := s.Check(json.RawMessage(fmt.Sprintf(`{"n":%v}`, []any{1, `"x"`}[i%2]))); (i%2 == 1) != (len(found) > 0) {
					t.Error(i, found)
				}
			}
		})
	}

	wg.Wait()
	require.LessOrEqual(t, int(s.made.Load()), runtime.GOMAXPROCS(0))
	require.Len(t, s.idle, int(s.made.Load()))
}
