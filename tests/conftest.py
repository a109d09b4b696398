"""Until the core is built, its double stands in for it."""

from tests import journal_support

__all__ = ["journal_support"]
