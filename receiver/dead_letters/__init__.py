"""Dead letters: rows the store refuses permanently, kept with the reason; list, replay, drop."""
