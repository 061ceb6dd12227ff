"""The errors of a cache. The text of each says what to do."""

from __future__ import annotations


class CacheError(Exception):
    """The base of all errors of this package. A cache that fails costs speed, never a message."""


class CacheUnusable(CacheError):
    """A tier cannot get its memory: no space, no such folder, not so many bytes. Raised at open only."""


class InvalidCacheConfig(CacheError):
    """A setting is out of its range."""


def shown(value: object) -> str:
    """The text of a value in an error's message: its type alone if it cannot be written, as an int of 5,000 digits."""
    try:
        return repr(value)
    except ValueError:
        return f"a {type(value).__name__} that cannot be shown"
