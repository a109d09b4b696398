"""Store process: runs the writer in a thread and the operators' API over the same store."""
