"""Benchmarks of the pages in a browser, and their screenshots."""
