"""Where spans rest: the Store contract, its two engines, the schema, and the writer that fills it."""
