"""Which topics a subscription has, and where it begins in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import translate
from typing import Literal, TypeAlias

from ..errors import InvalidMessage, InvalidTopic, shown
from ..log.streams import check_name
from .members import Member
from .parts import Parts
from .settings import Start, check_start, offsets_of

MOST_CHARACTERS = 1024

Topics: TypeAlias = "list[str] | tuple[str, ...] | set[str] | frozenset[str]"
TopicsStart: TypeAlias = "Literal['earliest', 'latest'] | int | Mapping[tuple[str, int], int]"
Starts: TypeAlias = "Literal['earliest', 'latest'] | int | dict[str, dict[int, int]]"  # checked


def check_topics(topics: Collection[object]) -> list[str]:
    """The names of topics, each once, sorted. Raises InvalidTopic."""
    if not topics:
        raise InvalidTopic("a list of topics names one at least; for those that match a pattern, give `pattern`")
    return sorted({check_name(topic, 0)[0] for topic in topics})


def check_pattern(pattern: object) -> Callable[[str], bool]:
    """Whether a topic matches a pattern, as in `fnmatch.fnmatchcase`. Raises InvalidTopic."""
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST_CHARACTERS:
        raise InvalidTopic(f"a pattern is a text of 1 to {MOST_CHARACTERS} characters, not {shown(pattern)}")
    try:
        compiled = re.compile(translate(pattern))
    except re.error as error:
        raise InvalidTopic(f"the pattern {shown(pattern)} is not one: {error}") from None
    return lambda topic: compiled.match(topic) is not None


def check_topics_start(start: object, topics: Collection[str] | None) -> Starts:
    """A checked position over several topics, which must be some of `topics` if these are known.

    Raises InvalidMessage.
    """
    if not isinstance(start, Mapping):
        plain = check_start(start)
        assert not isinstance(plain, Mapping)
        return plain
    found: dict[str, dict[int, int]] = {}
    for place, offset in start.items():
        if not isinstance(place, tuple) or len(place) != 2:
            raise InvalidMessage(f"offsets in several topics are by (topic, queue id), not by {shown(place)}")
        try:
            topic = check_name(place[0], 0)[0]
        except InvalidTopic as error:
            raise InvalidMessage(str(error)) from None
        if topics is not None and topic not in topics:
            raise InvalidMessage(f"{shown(topic)} is not a topic of the subscription")
        checked = check_start({place[1]: offset})
        assert isinstance(checked, Mapping)
        found.setdefault(topic, {}).update(checked)
    return found


def start_in(starts: Starts, topic: str) -> Start:
    """Where one topic begins: one that is not named begins at its first message."""
    return starts.get(topic, {}) if isinstance(starts, dict) else starts


def move_all(parts: Parts, members: Mapping[str, Member], starts: Starts) -> None:
    """Move members to a position, those that it names. Raises as `Subscription.seek` does."""
    named = [topic for topic in members if not isinstance(starts, dict) or topic in starts]
    if isinstance(starts, dict):
        for topic in named:  # all of them before the first is moved
            offsets_of(parts, topic, starts[topic])
    for topic in named:
        members[topic].seek(start_in(starts, topic))
