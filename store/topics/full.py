"""Topics that take no message, as their subscriptions keep more than the topics' `retention_bytes`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from ..errors import TopicFull, copy_of

Acknowledged = Callable[[], Mapping[str, int]]
Holder = Callable[[str], tuple[str | None, int]]  # the subscription of a topic that holds most, and its backlog


class FullTopics:
    """The topics that are full. Any number of threads may use it.

    While there is none, appends do not ask: `watch` gives the call that has them look closely.

    Invariants:
        * a topic that is full stays so until a look finds that less is kept: each refused append asks for one;
        * `note` is made by one thread at a time, so `looks_closely` was told last what `_errors` says.
    """

    def __init__(self) -> None:
        self._errors: Mapping[str, TopicFull] = {}  # replaced as a whole
        self._most: Mapping[str, int] = {}  # what each topic might keep when `_errors` were made
        self._noting = threading.RLock()  # a finalizer may append while its thread notes
        self._looks_closely: Callable[[bool], object] = bool
        self._look: Callable[[], object] = bool
        self._look_now: Callable[[], object] = bool
        self._holder: Holder = lambda topic: (None, 0)

    def watch(
        self, looks_closely: Callable[[bool], object], look: Callable[[], object], look_now: Callable[[], object],
        holder: Holder,
    ) -> None:  # fmt: skip
        """`looks_closely` is told whether some topic is full. `look` calls `note` with what is known to be kept, and
        `look_now` finds that out before.
        """
        self._looks_closely, self._look, self._look_now, self._holder = looks_closely, look, look_now, holder

    def look_now(self) -> None:
        """Find out which topics are full: the store was opened, or settings have changed. It raises nothing."""
        self._look_now()

    def __bool__(self) -> bool:
        """Whether some topic is full."""
        return bool(self._errors)

    def note(self, kept: Mapping[str, int], most: Mapping[str, int]) -> None:
        """Note what each topic keeps, in bytes, and what it may keep at the most."""
        with self._noting:
            known, errors = self._errors, dict[str, TopicFull]()
            for topic, most_bytes in most.items():
                kept_bytes = kept.get(topic, 0)
                if kept_bytes > most_bytes:
                    is_known = topic in known and self._most.get(topic) == most_bytes
                    errors[topic] = (
                        known[topic] if is_known else TopicFull(topic, *self._holder(topic), kept_bytes, most_bytes)
                    )
            self._errors, self._most = errors, dict(most)
            self._looks_closely(bool(errors))

    def check(self, topics: Iterable[str], acknowledged: Acknowledged | None = None) -> None:
        """Raise TopicFull if one of some topics is full.

        Args:
            topics: of each message that is to be appended.
            acknowledged: gives by topic how many messages are acknowledged with them. A full topic takes as many: a
                consumer that only moves its messages within a topic would never get on else.
        """
        if not self._errors:
            return
        counts, freed = Counter(topics), acknowledged() if acknowledged is not None else {}
        full = {topic for topic in self._errors.keys() & counts.keys() if counts[topic] > freed.get(topic, 0)}
        if full:
            self._look()
        for topic in sorted(full):
            error = self._errors.get(topic)
            if error is not None:
                raise copy_of(error)
