"""Explanation of a trace by a language model: what is sent, the model's tools, and its checked answer."""
