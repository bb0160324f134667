package main

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// metadata is what a test says of itself, between /*--- and ---*/.
type metadata struct {
	Includes []string `yaml:"includes"`
	Flags    []string `yaml:"flags"`
	Features []string `yaml:"features"`
	Negative *struct {
		Phase string `yaml:"phase"`
		Type  string `yaml:"type"`
	} `yaml:"negative"`
}

func parseMetadata(source string) (m metadata, err error) {
	_, text, begins := strings.Cut(source, "/*---")
	text, _, ends := strings.Cut(text, "---*/")
	if !begins || !ends {
		return m, fmt.Errorf("no metadata between /*--- and ---*/")
	}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	err = yaml.Unmarshal([]byte(text), &m)
	return m, err
}
