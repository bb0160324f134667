package guest

import "github.com/toolhost/toolhost/abi"

// FoundTools is the result of a search for tools.
type FoundTools = abi.FoundTools

// SearchTools searches the names, descriptions and schemas of the tools that the plugin was
// granted. It returns the best match first. An empty query finds all of these tools. The limit
// is at most 20; 0 means 5.
func (c *Call) SearchTools(query string, limit int) (found FoundTools, err error) {
	err = c.Host("tool.search", struct {
		Query string `json:"query"`
		Limit int    `json:"limit,omitempty"`
	}{query, limit}, &found)
	return found, err
}
