"""Which topics have an age of their own, by the settings of all topics: read once, some at a time, and kept true."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

READ_AT_ONCE = 256  # topics, by one call


class KnownAges:
    """The `retention_ms` of the topics that have one. One thread at a time.

    Invariant: what `all` has given is never changed; a change replaces it.
    """

    def __init__(self, names: Callable[[], Iterable[str]], read: Callable[[str], int | None]) -> None:
        """`names` gives the configured topics; `read` the age of one, None if it has none."""
        self._names = names
        self._read = read
        self._unread: list[str] | None = None
        self._ages: dict[str, int] = {}

    def all(self, unsure: Collection[str]) -> Mapping[str, int] | None:
        """The age of each topic that has one; None while there are settings to be read, some of them by each call.

        Those of the topics `unsure` are read each time. Raises as `read` does.
        """
        if self._unread is None:
            self._unread = list(self._names())
        for topic in self._unread[: -READ_AT_ONCE - 1 : -1]:
            _set(self._ages, topic, self._read(topic))
            self._unread.pop()
        if self._unread:
            return None
        if not unsure:
            return self._ages
        found = dict(self._ages)
        for topic in unsure:
            _set(found, topic, self._read(topic))
        return found

    def note(self, topic: str, age_ms: int | None) -> None:
        """A topic got this age."""
        if self._ages.get(topic) == age_ms:
            return
        ages = self._ages if self._unread else dict(self._ages)
        _set(ages, topic, age_ms)
        self._ages = ages


def _set(ages: dict[str, int], topic: str, age_ms: int | None) -> None:
    if age_ms is None:
        ages.pop(topic, None)
    else:
        ages[topic] = age_ms
