"""SQL of operators: a guard that accepts harmless SELECT statements only, and their execution."""
