"""Positions of streams in Spark's form: JSON of plain numbers by store and lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..store import LogPosition
from .errors import BadOption

Json = dict[str, Any]
Positions = dict[str, dict[int, LogPosition]]  # by the store's id and the lane


def packed(positions: Mapping[str, Mapping[int, LogPosition]]) -> Json:
    """The positions as JSON: {store id: {lane: {"segment": .., "entry": .., "messages": ..}}}."""
    return {
        store: {str(lane): position._asdict() for lane, position in lanes.items()} for store, lanes in positions.items()
    }


def unpacked(given: Json) -> Positions:
    """The positions of JSON. Raises BadOption for other JSON than that of `packed`."""
    try:
        return {
            store: {
                int(lane): LogPosition(int(one["segment"]), int(one["entry"]), int(one["messages"]))
                for lane, one in lanes.items()
            }
            for store, lanes in given.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadOption(f"the checkpoint has positions that are not of this data source: {given!r}") from error
