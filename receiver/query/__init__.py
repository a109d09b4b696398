"""Questions: what operators may ask the store. Reads the store, never the journal."""
