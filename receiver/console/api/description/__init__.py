"""Description of the API: its table of routes, as OpenAPI and as a page."""
