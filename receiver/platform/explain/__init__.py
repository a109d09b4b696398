"""Explanation of a trace by a language model: the request, the model's tools, and the checked answer."""
