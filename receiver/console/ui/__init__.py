"""The operators' pages: rendered on the server, readable without JavaScript."""
