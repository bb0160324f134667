// Mistakes is a plugin with one of the mistakes that authors make, as its tests build it: without -buildmode=c-shared,
// with Serve in main, with a panic in init, or with an access that was not granted.
package main

import (
	"net"
	"os"

	"github.com/toolhost/toolhost/guest"
)

var mistake string // set by the linker

var plugin = guest.Plugin{
	Name: "mistakes", Version: "1.0.0", Description: "For tests.",
	Tools: []guest.Tool{{Name: "mistakes", Description: "For tests.", Handler: guest.Handle(call)}},
}

func call(*guest.Call, struct{}) (string, error) {
	if mistake == "panic elsewhere" {
		done := make(chan bool)
		go func() { panic("elsewhere: \x1b[31m\ntime=now level=ERROR msg=forged") }()
		<-done
	}
	switch mistake {
	case "dial":
		_, err := net.Dial("tcp", "127.0.0.1:80")
		return "", err
	case "look up":
		_, err := net.Dial("tcp", "example.com:80")
		return "", err
	case "read":
		_, err := os.ReadFile("/etc/passwd")
		return "", err
	}
	return "done", nil
}

func init() {
	if mistake != "serve in main" {
		guest.Serve(&plugin)
	}
	if mistake == "serve twice" {
		guest.Serve(&plugin)
	}
	if mistake == "panic in init" {
		var settings map[string]string
		settings["color"] = "red"
	}
}

func main() { guest.Serve(&plugin) }
