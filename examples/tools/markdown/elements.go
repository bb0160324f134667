package main

import (
	"strings"

	"golang.org/x/net/html"
)

// elements returns the outermost elements with a name in a page, as HTML.
func elements(page, name string) (parts []string, _ error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return nil, err
	}

	var find func(n *html.Node) error
	find = func(n *html.Node) error {
		if n.Type == html.ElementNode && n.Data == name {
			var out strings.Builder
			err := html.Render(&out, n)
			parts = append(parts, out.String())
			return err
		}
		for child := range n.ChildNodes() {
			if err := find(child); err != nil {
				return err
			}
		}
		return nil
	}
	return parts, find(root)
}
