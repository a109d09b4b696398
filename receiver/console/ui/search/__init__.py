"""Page of the search: its list, facets, chart, and what is different about a selection."""
