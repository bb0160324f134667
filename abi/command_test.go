package abi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplates: a template is text and names, and no brace is lost that belongs to none.
func TestTemplates(t *testing.T) {
	for template, want := range map[string]string{
		"":              "",
		"{a}":           "x y",
		"{a}{a}":        "x yx y",
		"<{a}|{n}>":     "<x y|1.50>",
		"{o} {l}":       `{"k": 1} [1,"b"]`,
		"{missing}{no}": "",
		"{{a}}":         "{a}",
		"{{{a}}}":       "{x y}",
		"{":             "{", "}": "}", "{}": "{}", "a}b{c": "a}b{c", "{a": "{a", "{ {a}": "{ x y",
		"awk '{{print $1}}'": "awk '{print $1}'",
		"{t}{f}":             "truefalse",
		"{ü}":                "\u0000",
	} {
		args := json.RawMessage(`{"a":"x y","n":1.50,"o":{"k": 1},"l":[1,"b"],"no":null,"t":true,"f":false,"ü":"\u0000"}`)
		got, err := ExpandTemplate(template, args)
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", template)
	}
}

// TestHostileValues: no value of an argument becomes an option, another word, or anything
// that a program would look up, and none ends a word.
func TestHostileValues(t *testing.T) {
	option := func(name string) string {
		return `the argument "` + name + `" begins with "-": the program could read it as an option`
	}
	zero := `the argument "a" has a zero byte, which would end it`
	for name, c := range map[string]struct {
		command string // but for the braces around it
		args    string
		words   []string
		err     string
	}{
		"an option":                      {`"args":["{a}"]`, `{"a":"--output=/work/x"}`, nil, option("a")},
		"a short option":                 {`"args":["{a}"]`, `{"a":"-o"}`, nil, option("a")},
		"a dash":                         {`"args":["{a}"]`, `{"a":"-"}`, nil, option("a")},
		"the end of options":             {`"args":["{a}","{b}"]`, `{"a":"--","b":"-x"}`, nil, option("a")},
		"a negative number":              {`"args":["{a}"]`, `{"a":-1}`, nil, option("a")},
		"a number allowed":               {`"args":["{a}"],"allow_dash":["a"]`, `{"a":-1e9}`, []string{"-1000000000"}, ""},
		"an escaped dash":                {`"args":["{a}"]`, `{"a":"\u002dx"}`, nil, option("a")},
		"an escaped name":                {`"args":["{a}"]`, `{"\u0061":"-x"}`, nil, option("a")},
		"an element":                     {`"args":["{a}"]`, `{"a":["x","-rf"]}`, nil, option("a")},
		"a number as an element":         {`"args":["{a}"]`, `{"a":[1,-1]}`, nil, option("a")},
		"an element of an element":       {`"args":["{a}"]`, `{"a":[["-x"]]}`, []string{`["-x"]`}, ""},
		"a key of an object":             {`"args":["{a}"]`, `{"a":{"-x":1}}`, []string{`{"-x":1}`}, ""},
		"the value of an option":         {`"args":["-c","{a}"]`, `{"a":"-x"}`, nil, option("a")},
		"the value of an option, fine":   {`"args":["-c","{a}"],"allow_dash":["a"]`, `{"a":"-x"}`, []string{"-c", "-x"}, ""},
		"another is allowed":             {`"args":["{a}"],"allow_dash":["b"]`, `{"a":"-x","b":"-y"}`, nil, option("a")},
		"after =":                        {`"args":["--name={a}"]`, `{"a":"-x"}`, []string{"--name=-x"}, ""},
		"in a group":                     {`"args":[["-n","{a}"]]`, `{"a":"-x"}`, nil, option("a")},
		"two values, the first empty":    {`"args":["{a}{b}"]`, `{"a":"","b":"-x"}`, nil, option("b")},
		"two values, the first missing":  {`"args":["{a}{b}"]`, `{"b":"-x"}`, nil, option("b")},
		"two values":                     {`"args":["{a}{b}"]`, `{"a":"-","b":"-x"}`, nil, option("a")},
		"a value and a literal":          {`"args":["{a}.txt"]`, `{"a":"-x"}`, nil, option("a")},
		"an empty value and a literal":   {`"args":["{a}-x"]`, `{"a":""}`, []string{"-x"}, ""},
		"a literal dash":                 {`"args":["-{a}"]`, `{"a":"x"}`, []string{"-x"}, ""},
		"after --":                       {`"args":["--","{a}","x{b}"]`, `{"a":["-x","--"],"b":"-y"}`, []string{"--", "-x", "--", "x-y"}, ""},
		"before --":                      {`"args":["{a}","--","{b}"]`, `{"a":"-x","b":"-y"}`, nil, option("a")},
		"after -- of a value":            {`"args":["{a}","{b}"],"allow_dash":["a"]`, `{"a":"--","b":"-x"}`, nil, option("b")},
		"after -- made of values":        {`"args":["-{a}","{b}"]`, `{"a":"-","b":"-x"}`, nil, option("b")},
		"after a group with --":          {`"args":[["--","{a}"],"{b}"]`, `{"a":"x","b":"-x"}`, []string{"--", "x", "-x"}, ""},
		"after a group left out":         {`"args":[["--","{a}"],"{b}"]`, `{"b":"-x"}`, nil, option("b")},
		"after -- that is a value":       {`"args":["-n","{n}","--","{b}"]`, `{"b":"-x"}`, nil, option("b")},
		"after -- and no elements":       {`"args":["-n","{n}","--","{b}"]`, `{"n":[ ],"b":"-x"}`, nil, option("b")},
		"after -- that completes -n":     {`"args":["-n{n}","--","{b}"]`, `{"n":"","b":"-x"}`, nil, option("b")},
		"after -- and an empty value":    {`"args":["-n","{n}","--n={n}","--","{b}"]`, `{"n":"","b":"-x"}`, []string{"-n", "", "--n=", "--", "-x"}, ""},
		"after -- and a flag":            {`"args":[["-n","{n}"],"--","{b}"]`, `{"n":true,"b":"-x"}`, []string{"-n", "--", "-x"}, ""},
		"after -- and no operand":        {`"args":["cat","{n}","--","{b}"]`, `{"b":"-x"}`, []string{"cat", "--", "-x"}, ""},
		"a group without elements":       {`"args":[["-n","{n}"],"--","{b}"]`, `{"n":[ ],"b":"-x"}`, []string{"--", "-x"}, ""},
		"after --x":                      {`"args":["--x","{a}"]`, `{"a":"-x"}`, nil, option("a")},
		"white space before a dash":      {`"args":["{a}"]`, `{"a":" -x\n-y"}`, []string{" -x\n-y"}, ""},
		"another dash":                   {`"args":["{a}"]`, `{"a":"−x"}`, []string{"−x"}, ""},
		"more words":                     {`"args":["{a}"]`, `{"a":"x -y; rm -rf / # \" '"}`, []string{`x -y; rm -rf / # " '`}, ""},
		"a zero":                         {`"args":["{a}"]`, `{"a":"x\u0000--y"}`, nil, zero},
		"a zero after --":                {`"args":["--","{a}"]`, `{"a":"x\u0000y"}`, nil, zero},
		"a zero that is allowed a dash":  {`"args":["{a}"],"allow_dash":["a"]`, `{"a":"-\u0000"}`, nil, zero},
		"a zero in an element":           {`"args":["{a}"]`, `{"a":["x","\u0000"]}`, nil, zero},
		"a zero in a word":               {`"args":["x{a}"]`, `{"a":"\u0000"}`, nil, zero},
		"a zero within JSON":             {`"args":["{a}"]`, `{"a":{"x":"\u0000"}}`, []string{`{"x":"\u0000"}`}, ""},
		"an expanded name":               {`"args":["x{a}"]`, `{"a":"{b}","b":"secret"}`, []string{"x{b}"}, ""},
		"braces around":                  {`"args":["{{{a}}}"]`, `{"a":"{b}","b":"secret"}`, []string{"{{b}}"}, ""},
		"the environment":                {`"args":["$HOME","{a}"]`, `{"a":"$HOME ${HOME} %PATH% $(id) ` + "`id`" + `"}`, []string{"$HOME", "$HOME ${HOME} %PATH% $(id) `id`"}, ""},
		"a file":                         {`"args":["@/etc/passwd","<{a}"]`, `{"a":"/etc/passwd"}`, []string{"@/etc/passwd", "</etc/passwd"}, ""},
		"a pattern":                      {`"args":["{a}"]`, `{"a":"~/*.txt"}`, []string{"~/*.txt"}, ""},
		"an argument nobody names":       {`"args":["{a}"]`, `{"a":"x","b":"-y"}`, []string{"x"}, ""},
		"repeated":                       {`"args":["--x={a...}"]`, `{"a":["-y","","a b",2.0]}`, []string{"--x=-y", "--x=", "--x=a b", "--x=2"}, ""},
		"repeated with its option":       {`"args":[["-e","{a...}"],"{b}"]`, `{"a":["x","y"],"b":"z"}`, []string{"-e", "x", "-e", "y", "z"}, ""},
		"repeated, an option":            {`"args":[["-e","{a...}"]]`, `{"a":["x","--help"]}`, nil, option("a")},
		"repeated, allowed":              {`"args":[["-e","{a...}"]],"allow_dash":["a"]`, `{"a":["x","-y"]}`, []string{"-e", "x", "-e", "-y"}, ""},
		"repeated alone":                 {`"args":["{a...}"]`, `{"a":["x","-y"]}`, nil, option("a")},
		"repeated, no word for a null":   {`"args":[["-e","{a...}"],"--x={a...}","{a...}","--","{b}"]`, `{"a":[null,false],"b":"-x"}`, []string{"--", "-x"}, ""},
		"repeated, a flag":               {`"args":[["-v","{a...}"]]`, `{"a":[true,false,true]}`, []string{"-v", "-v"}, ""},
		"repeated, nothing":              {`"args":[["-e","{a...}"],"--x={a...}"]`, `{"a":[]}`, nil, ""},
		"repeated, missing":              {`"args":[["-e","{a...}"],"--x={a...}"]`, `{}`, nil, ""},
		"repeated, no array":             {`"args":["--x={a...}"]`, `{"a":"[1]"}`, []string{"--x=[1]"}, ""},
		"repeated, another is missing":   {`"args":[["-e","{a...}","{b}"]]`, `{"a":["x"]}`, nil, ""},
		"repeated, with the same value":  {`"args":[["-e","{a...}={a}"],"{a}"]`, `{"a":["x","y"]}`, []string{"-e", "x=x", "-e", "y=y", "x", "y"}, ""},
		"repeated, a zero":               {`"args":["--x={a...}"]`, `{"a":["x","\u0000"]}`, nil, zero},
		"repeated, an array as a word":   {`"args":[["-e","{a...}"]]`, `{"a":[["x","-y"],"z"]}`, []string{"-e", `["x","-y"]`, "-e", "z"}, ""},
		"repeated, an array in it":       {`"args":["--x={a...}"]`, `{"a":[["-y"]]}`, []string{`--x=["-y"]`}, ""},
		"repeated, -- that a value is":   {`"args":[["-n","{a...}"],"--","{b}"]`, `{"a":[[]],"b":"-x"}`, []string{"--", "-x"}, ""},
		"after -- and nothing repeated":  {`"args":["-o","{a...}","--","{b}"]`, `{"b":"-x"}`, nil, option("b")},
		"after -- and no elements of it": {`"args":["-o","{a...}","--","{b}"]`, `{"a":[],"b":"-x"}`, nil, option("b")},
		"after -- and a null":            {`"args":["-o","{a...}","--","{b}"]`, `{"a":[null,false],"b":"-x"}`, nil, option("b")},
		"after -- and a group, a value":  {`"args":["-o",["{a}","y"],"--","{b}"]`, `{"b":"-x"}`, nil, option("b")},
		"after -- and a group, options":  {`"args":["-v",["-o","{a...}"],["--y={a}"],"--","{b}"]`, `{"b":"-x"}`, []string{"-v", "--", "-x"}, ""},
		"no arguments at all":            {`"args":["-o","{a...}","--","b"]`, `null`, []string{"-o", "--", "b"}, ""},
		"dots":                           {`"args":["a{...}b"]`, `{"...":1}`, []string{"a1b"}, ""},
		"no object":                      {`"args":["{a}","b"]`, `["-x"]`, []string{"b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var command Command
			require.NoError(t, json.Unmarshal([]byte("{"+c.command+"}"), &command))
			words, err := command.Line(json.RawMessage(c.args))
			require.Equal(t, c.words, words)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
		})
	}
}

// TestHostileFlags: what is true of words is true of --name value.
func TestHostileFlags(t *testing.T) {
	for args, want := range map[string]error{
		`{"a":"x","b":true,"c":[-1]}`: nil,
		`{"a":"-\u0000"}`:             ErrZero,
		`{"dash":"-x"}`:               nil,
		`{"dash":"\u0000"}`:           ErrZero,
		`{"":"x"}`:                    ErrName,
		`{"a=b":true}`:                ErrName,
		`{"a\u0000b":1}`:              ErrName,
		`{"a b":1}`:                   ErrName,
		`{"a b":false}`:               nil,
	} {
		_, err := (&Command{AllowDash: []string{"dash"}}).Flags(json.RawMessage(args))
		require.ErrorIs(t, err, want, args)
	}

	flags, err := (&Command{AllowDash: []string{"dash"}}).Flags(json.RawMessage(`{"a":"-x","b":"--","dash":"-x","n":-1.5,"o":2}`))
	require.NoError(t, err)
	require.Equal(t, []string{"--a=-x", "--b=--", "--dash", "-x", "--n=-1.5", "--o", "2"}, flags)
}

// TestHostileTemplates: a template has names of arguments and nothing else.
func TestHostileTemplates(t *testing.T) {
	for _, name := range []string{"HOME", "env.HOME", "$HOME", "@/etc/passwd", "file:/etc/passwd", "a.b", "a[0]", "a|sh", " a", "A", "stdin", "0"} {
		tool := Tool{Name: "t", Description: "T.", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{}}}`)}
		tool.Command = Command{Args: []Word{{Templates: []string{"{" + name + "}"}}}, Stdin: new("{" + name + "}"), Env: map[string]string{"A": "{" + name + "}"}}
		problem := "{" + name + "} is not a property of input_schema: write {{" + name + "}} for the text"
		require.Equal(t, []Problem{{"/command/args/0", problem}, {"/command/stdin", problem}}, tool.Check(), "a variable is not a template")
	}
}

// A word or a group is repeated for one argument, and nothing but words is repeated.
func TestRepeatedOnce(t *testing.T) {
	tool := Tool{Name: "t", Description: "T.", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{},"b":{}}}`)}
	tool.Command = Command{Args: []Word{{Templates: []string{"-e", "{a...}", "{a}{b...}"}, Group: true}, {Templates: []string{"{c...}"}}}, Stdin: new("x{a...}")}
	require.Equal(t, []Problem{
		{"/command/args/0", "{a...} and {b...} both repeat it: expected one of them"},
		{"/command/args/1", "{c} is not a property of input_schema: write {{c}} for the text"},
		{"/command/stdin", "{a...} repeats a word of command.args: expected {a}"},
	}, tool.Check())
}

// TestZeroInTemplate: no call could begin.
func TestZeroInTemplate(t *testing.T) {
	tool := Tool{Name: "t", Description: "T.", InputSchema: json.RawMessage(`{"type":"object"}`)}
	tool.Command.Args = []Word{{Templates: []string{"a\x00b"}}}
	require.Equal(t, []Problem{{"/command/args/0", "has a zero byte, which would end the word"}}, tool.Check())
}

// TestBombs: a few templates cannot become more than a command gets.
func TestBombs(t *testing.T) {
	args, err := json.Marshal(map[string]any{"a": strings.Repeat("x", 1<<20), "l": slices.Repeat([]string{strings.Repeat("x", 1<<10)}, 1000)})
	require.NoError(t, err)
	_, err = ExpandTemplate(strings.Repeat("{a}", 1000), args)
	require.ErrorIs(t, err, ErrExpanded)
	for _, word := range []string{strings.Repeat("{a}", 1000), "{l}", "{a}"} {
		c := Command{Args: slices.Repeat([]Word{{Templates: slices.Repeat([]string{word}, MaxWords), Group: true}}, MaxWords)}
		_, err = c.Line(args)
		require.ErrorIs(t, err, ErrExpanded)
	}
	nulls := json.RawMessage(`{"l":[` + strings.Repeat("null,", 1<<20) + `null]}`)
	each := Command{Args: []Word{{Templates: slices.Repeat([]string{"{l...}" + strings.Repeat("{m}", 1000)}, MaxWords), Group: true}}}
	_, err = each.Line(nulls)
	require.ErrorIs(t, err, ErrExpanded, "what is left out costs time too")

	got, err := ExpandTemplate("{a}", args)
	require.NoError(t, err)
	require.Len(t, got, 1<<20)

	words := Command{Args: slices.Repeat([]Word{{Templates: []string{"{a}"}}}, MaxWords)}
	for name, array := range map[string]string{
		"small words": strings.Repeat(`"",`, MaxExpanded/64) + `""`,
		"white space": `""` + strings.Repeat(" ", 1<<20),
	} {
		line, err := words.Line(json.RawMessage(`{"a":[` + array + `]}`))
		require.ErrorIs(t, err, ErrExpanded, name)
		require.Empty(t, line)
	}
}

// FuzzCommand: whatever a command line is, what it is expanded to is bounded by the
// arguments, and it is read as it is written.
func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"args":["-c","{a}",["--b","{b}"],"{{x}}"]}`), `{"a":[1,"two",null],"b":true}`)
	f.Add([]byte(`{}`), `{"a":"x\u0000y","b":{}}`)
	f.Add([]byte(`{}`), `{"":}`)
	f.Fuzz(func(t *testing.T, manifest []byte, args string) {
		var c, again Command
		if json.Unmarshal(manifest, &c) != nil {
			return
		}
		line, err := c.Line(json.RawMessage(args))
		if err != nil {
			return
		}
		flags, _ := c.Flags(json.RawMessage(args))
		require.False(t, slices.ContainsFunc(flags, func(s string) bool { return strings.Contains(s, "\x00") }))

		data, err := json.Marshal(c)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &again))
		repeated, err := again.Line(json.RawMessage(args))
		require.NoError(t, err)
		require.Equal(t, line, repeated, "%s", data)
	})
}
