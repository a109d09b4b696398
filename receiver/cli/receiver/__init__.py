"""Commands of the receiver."""
