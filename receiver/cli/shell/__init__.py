"""What the commands share: tables, widths, screen, completion, and the client of the API."""
