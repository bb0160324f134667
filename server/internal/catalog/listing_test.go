package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadListing(t *testing.T) {
	for problem, listing := range map[string]Listings{
		"Listing.[: expected the name of a tool, or a pattern such as files_*": {"[": ListBySearch},
		"Listing.: expected the name of a tool, or a pattern such as files_*":  {"": ListBySearch},
		`Listing.a: expected list or search, found "hide"`:                     {"a": "hide"},
	} {
		require.EqualError(t, listing.Check(), problem)
	}
}
