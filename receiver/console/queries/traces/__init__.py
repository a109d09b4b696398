"""One trace: its spans, its tree and critical path, OTLP, and the differences of two traces."""
