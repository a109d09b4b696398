"""Stand-ins that need a process of their own."""
