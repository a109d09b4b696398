"""Code shared by all HTTP ports: parser limits, connection limits, timeouts, the check of Host and Origin."""
