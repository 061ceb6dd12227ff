"""Chains of dead letters: what goes from topic to topic must not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from ..errors import InvalidMessage
from .names import Names


class DeadLetterChains:
    """The topics of a store as its subscriptions lead from one to the next. Any number of threads may use it.

    Invariant: no chain that was made here goes round.
    """

    def __init__(self, names: Names, dead_letters_of: Callable[[str, str], str | None]) -> None:
        """`dead_letters_of` says where a subscription, by topic and name, sends its dead letters."""
        self._names = names
        self._dead_letters_of = dead_letters_of
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, topic: str, dead_letter_topic: str | None) -> Iterator[Callable[[], None]]:
        """For whoever makes or changes a subscription of a topic, which no other thread does meanwhile: the check.

        It raises InvalidMessage if the dead letters would come back.
        """
        with nullcontext() if dead_letter_topic is None else self._lock:
            yield partial(self._check, topic, dead_letter_topic)

    def _check(self, topic: str, dead_letter_topic: str | None) -> None:
        if dead_letter_topic is None:
            return
        left, seen = [dead_letter_topic], {dead_letter_topic}
        while left:
            at = left.pop()
            for name in self._names.of(at):
                leads_to = self._dead_letters_of(at, name)
                if leads_to == topic:
                    raise InvalidMessage(
                        f"dead letters of {topic!r} would come back to it without end: they lead to {at!r}, whose "
                        f"subscription {name!r} sends its own to {topic!r}; name another dead_letter_topic"
                    )
                if leads_to is not None and leads_to not in seen:
                    seen.add(leads_to)
                    left.append(leads_to)
