package guest

import "github.com/toolhost/toolhost/abi"

// FoundTools are the tools that a search has found.
type FoundTools = abi.FoundTools

// SearchTools finds tools among those that the plugin was granted, by words of their
// names, descriptions and schemas, best match first. An empty query finds all. The
// limit is at most 20; 0 means 5.
func (c *Call) SearchTools(query string, limit int) (found FoundTools, err error) {
	err = c.Host("tool.search", struct {
		Query string `json:"query"`
		Limit int    `json:"limit,omitempty"`
	}{query, limit}, &found)
	return found, err
}
