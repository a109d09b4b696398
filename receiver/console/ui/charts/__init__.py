"""Charts of the pages, drawn on the server as SVG."""
