"""Topics that take no message, as their subscriptions keep more than the topics' `retention_bytes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..errors import TopicFull, copy_of

Holder = Callable[[str], tuple[str | None, int]]  # the subscription of a topic that holds most, and its backlog


class FullTopics:
    """The topics that are full. Any number of threads may use it.

    While there is none, appends do not ask: `watch` gives the call that has them look closely.

    Invariant: a topic that is full stays so until a look finds that less is kept: each refused append asks for one.
    """

    def __init__(self) -> None:
        self._errors: Mapping[str, TopicFull] = {}  # replaced as a whole
        self._looks_closely: Callable[[bool], object] = bool
        self._look: Callable[[], object] = bool
        self._holder: Holder = lambda topic: (None, 0)

    def watch(self, looks_closely: Callable[[bool], object], look: Callable[[], object], holder: Holder) -> None:
        """`looks_closely` is told whether some topic is full; `look` calls `note` with what is kept now."""
        self._looks_closely, self._look, self._holder = looks_closely, look, holder

    def __bool__(self) -> bool:
        """Whether some topic is full."""
        return bool(self._errors)

    def note(self, kept: Mapping[str, int], most: Mapping[str, int]) -> None:
        """Note what each topic keeps beyond retention, in bytes, and what it may keep at the most."""
        known, errors = self._errors, dict[str, TopicFull]()
        for topic, most_bytes in most.items():
            kept_bytes = kept.get(topic, 0)
            if kept_bytes > most_bytes:
                errors[topic] = known.get(topic) or TopicFull(topic, *self._holder(topic), kept_bytes, most_bytes)
        self._errors = errors
        self._looks_closely(bool(errors))

    def check(self, topics: Iterable[str]) -> None:
        """Raise TopicFull if one of some topics is full."""
        full = self._errors.keys() & {*topics} if self._errors else set()
        if full:
            self._look()
        for topic in sorted(full):
            error = self._errors.get(topic)
            if error is not None:
                raise copy_of(error)
