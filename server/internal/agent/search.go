package agent

import (
	"context"

	"github.com/toolhost/toolhost/server/internal/catalog"
)

// search answers tools_search.
func (a *Tools) search(_ context.Context, _ Session, c Call) (any, error) {
	in, err := decode[struct {
		Query string   `json:"query"`
		Limit *float64 `json:"limit"`
	}](c.Args)
	if err != nil {
		return nil, err
	}

	limit := catalog.DefaultFound
	if in.Limit != nil {
		limit = int(*in.Limit)
	}
	return a.catalog.Search(in.Query, limit, a.entries()), nil
}
