"""Long-running benchmarks: resource growth under a steady load, and a backlog that fills the journal."""
