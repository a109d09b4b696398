"""Intake: receives deliveries over HTTP and writes them to the journal before it acknowledges them."""
