// Command is the fixture of abi/testdata/commands.json: a WASI program that
// knows nothing of Toolhost. Its first argument is the name of the tool.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	switch os.Args[0] {
	case "json": // the arguments as they came
		fmt.Printf(" {\"args\": %s}\n", stdin)
	case "text":
		fmt.Println("no JSON:", len(stdin), "bytes")
	case "nothing":
	case "stdin": // as it came
		os.Stdout.Write(stdin)
	case "bytes":
		var in struct{ Bytes []byte }
		if err := json.Unmarshal(stdin, &in); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Stdout.Write(in.Bytes)
	case "env":
		fmt.Println(strings.Join(os.Environ(), "|"))
	case "words":
		fmt.Println(strings.Join(os.Args[1:], "|"))
	case "fail":
		fmt.Println("two findings")
		os.Exit(1)
	case "exit":
		fmt.Print(`{"partial": true}`)
		fmt.Fprintln(os.Stderr, "it did not work")
		os.Exit(3)
	}
}
