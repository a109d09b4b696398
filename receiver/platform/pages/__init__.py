"""Operators' pages of the hosting platform."""
