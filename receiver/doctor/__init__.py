"""Doctor: checks of a drain from its public URL to the stored row, and of this machine."""
