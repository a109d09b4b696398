"""Routes of the operators' API for the hosting platform."""
