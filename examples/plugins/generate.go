// Package plugins contains a folder for each example plugin. Each plugin is
// small enough to be read in a minute. To build them from source into dist:
//
//	go generate ./examples/plugins
package plugins

//go:generate go run ./internal/generate . dist
