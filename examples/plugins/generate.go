// Package plugins holds one folder for each example plugin, small enough to
// read in a minute. They are built from source into dist by
//
//	go generate ./examples/plugins
package plugins

//go:generate go run ./internal/generate . dist
