"""Console: queries over the stored spans, the operators' API, the pages, and interfaces of other tools."""
