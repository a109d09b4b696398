"""The way in: HTTP on one side, a durable promise on the other."""
