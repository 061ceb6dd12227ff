"""What an order promises, at each call of a consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..check import BrokenPromise
from .ledger import Kind, Ledger, Place

Line = tuple[int, bytes]  # (queue id, key); of a whole queue the key is empty


def line_of(ledger: Ledger, kind: Kind, place: Place) -> Line | None:
    """The line of a message; None if it is in no order."""
    if not kind.is_ordered:
        return None
    key = ledger.sent[place].key if kind.settings.get("order_by") == "key" else b""
    return None if key is None else (place[0], key)


def check_order(
    ledger: Ledger, kind: Kind, given: Sequence[Place], in_hand: set[Place], firsts: Mapping[int, int]
) -> int:
    """May one call give these out, while consumers have the others `in_hand`? Raises BrokenPromise.

    `firsts`: where each queue begins. Returns how many of them follow another one of their line.
    """
    left: dict[Line, list[Place]] = {}  # of each line, what has to come first
    busy: dict[Line | None, Place] = {}
    for place in ledger.subscriptions[kind.name].open:
        sent, line = ledger.sent[place], line_of(ledger, kind, place)
        stays = sent.outlives and not sent.may_be_over  # a trim takes delayed ones, too
        if line is None or (place[1] < firsts.get(place[0], 0) and not stays):
            continue
        if place in in_hand:
            busy[line] = place
        if not sent.times:  # what is delayed comes when it is due
            left.setdefault(line, []).append(place)
    for of_line in left.values():
        of_line.sort(reverse=True)
    lines, followers = set[Line](), 0
    for place in given:
        line = line_of(ledger, kind, place)
        if line is None:
            continue
        followers += line in lines
        lines.add(line)
        if line in busy:
            raise BrokenPromise(f"{kind.name} gets {place} of a line of which a consumer has {busy[line]}")
        waiting = left.get(line, [])
        if ledger.sent[place].times:
            continue
        if waiting and waiting[-1] < place:
            raise BrokenPromise(f"{kind.name} gets {place} before {waiting[-1]} of its line")
        if waiting and waiting[-1] == place:
            waiting.pop()
    return followers
