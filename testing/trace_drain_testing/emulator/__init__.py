"""Emulator of the hosting platform, for tests, the demo and other programs."""
