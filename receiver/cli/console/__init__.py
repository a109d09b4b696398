"""Commands that read the stored spans."""
