"""What every HTTP port shares: parser limits, connection caps, timeouts, the check of Host and Origin."""
