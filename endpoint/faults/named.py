"""What the calls of `stratalog.connect` name. Their requests are dicts, which a client may fill as it likes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def topics_named(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The topics, each once, in the order in which they come."""
    return tuple(dict.fromkeys(one for one in _topics(request) if isinstance(one, str)))


def _topics(request: Mapping[str, Any]) -> Iterator[Any]:
    given = request.get("given")
    yield from _listed(request.get("topics"))  # the server adds these to a call of a subscription
    for source in (request, given):  # an append in columns, a transaction
        if isinstance(source, Mapping):
            yield from _firsts(source.get("streams"))
    yield from _firsts(request.get("rows"))
    yield from _firsts(request.get("deliveries"))
    for arguments in (request.get("arguments"), given):
        found = _arguments(arguments)
        topic = found.get("topic", found.get("dead_letter_topic"))
        yield from (topic,) if isinstance(topic, str) else _listed(topic)


def group_named(request: Mapping[str, Any]) -> str:
    """The subscription, "" for none."""
    name = request.get("group", _arguments(request.get("arguments")).get("name"))
    return name if isinstance(name, str) else ""


def _listed(value: Any) -> list[Any]:
    """A list, a tuple or a set as it travels; of a map its names."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, value),) = value.items()
        return _firsts(value) if kind == "map" else _listed(value) if kind in ("tuple", "set") else []
    return value if isinstance(value, list) else []


def _firsts(rows: Any) -> list[Any]:
    """The first of each row."""
    return [row[0] for row in map(_listed, _listed(rows)) if row]


def _arguments(value: Any) -> dict[str, Any]:
    """Arguments by name."""
    if not isinstance(value, dict) or not isinstance(value.get("map"), list):
        return {}
    return {
        pair[0]: pair[1]
        for pair in value["map"]
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
    }
