"""The errors of a cache. The text of each says what to do."""

from __future__ import annotations


class CacheError(Exception):
    """The base of all errors of this package. A cache that fails costs speed, never a message."""


class CacheUnusable(CacheError):
    """A tier cannot have its memory: no space, no such folder, no such amount. Raised at open only."""


class InvalidCacheConfig(CacheError):
    """A setting is out of its range."""


def shown(value: object) -> str:
    """A value as an error's text shows it: its type alone where it cannot be written, as an int of 5,000 digits."""
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} that cannot be shown"
