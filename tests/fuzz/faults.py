"""The fault model: what can become of the files of a closed store while nobody looks.

* **Flips**: one to three bits of a file; mostly of what many messages hang on: the first blocks, heads and columns of
  frames, footers, START, STORE.
* **Blocks** of zeros or of garbage, as a device gives for a bad sector or a lost write: 512 bytes to 16 KiB.
* **Cut files**: to nothing, inside a header, inside the log, or by a few bytes.
* **Lost names**: a segment in use (the first, one in the middle, the last), a spare, a lane's folder, START, STORE.
* **Wrong files**: two exchanged, one copied over another, an older copy of the same file put back, a file of another
  store.

A fault is a function from one state of the folder to another. It is made for one state, and does what it can to any.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stratalog.store.format.layout import BLOCK_BYTES
from tests.store.helpers import Snapshot

from .places import FilePlaces, Places, zones_of

ZONES = {
    "header": 2, "record": 2, "frame head": 3, "columns": 2, "payload": 2, "footer head": 2, "footer": 3,
}  # fmt: skip
STORE_BYTES = 40  # of the file STORE that mean something


class Fault(NamedTuple):
    """One damage, and what it is in words."""

    text: str
    apply: Callable[[Snapshot], Snapshot]


def draw_faults(places: Places, others: Sequence[Places], chance: random.Random) -> list[Fault]:
    """One to three faults for a story; `others` are the stories that foreign files come from."""
    count = chance.choice((1, 1, 1, 2, 2, 3))
    return [_draw(places, others, chance) for _ in range(count)]


def _draw(places: Places, others: Sequence[Places], chance: random.Random) -> Fault:
    kinds: list[tuple[int, Callable[[Places, random.Random], Fault | None]]] = [
        (12, _flip), (3, _block), (3, _cut), (4, _lose), (2, _exchange), (3, _old_copy),
        (1, lambda places, chance: _foreign(places, chance.choice(others), chance)),
    ]  # fmt: skip
    while True:
        draw = chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        fault = draw(places, chance)
        if fault is not None:
            return fault


def draw_pair(places: Places, others: Sequence[Places], chance: random.Random) -> list[Fault]:
    """Two faults: anywhere; or flips in two places that tell of each other."""
    if chance.random() < 0.4:
        return [_draw(places, others, chance) for _ in range(2)]
    file = _pick(places, chance)
    lane = [one for one in places.files if one.lane == file.lane]
    at = lane.index(file)
    following = lane[at + 1] if at + 1 < len(lane) else None
    zones = zones_of(file)
    pairs = [(first, second) for first, second in CLOSE_PAIRS if first in zones and second in zones]
    faults: list[Fault] = []
    if following is not None and chance.random() < 0.3:  # across the border of two segments
        kinds = [kind for kind in ("record", "footer", "frame head", "payload") if kind in zones]
        faults = [
            _flip_in(file, chance.choice(kinds), chance, last=True),
            _flip_in(following, chance.choice(("header", "record")), chance),
        ]
    elif pairs:
        faults = [_flip_in(file, kind, chance, last=chance.random() < 0.5) for kind in chance.choice(pairs)]
    starts = [name for name in _starts(places) if name.startswith(file.name.partition("/")[0])]
    if starts and (not faults or chance.random() < 0.1):
        faults = [_flip_at(starts[0], 0, STORE_BYTES, "START", chance), _flip_in(lane[0], "header", chance)]
    return faults or [_flip(places, chance), _flip(places, chance)]


CLOSE_PAIRS = (
    ("record", "payload"), ("record", "frame head"), ("record", "columns"), ("record", "header"), ("record", "footer"),
    ("footer head", "payload"), ("footer head", "frame head"), ("footer", "columns"), ("footer", "header"),
    ("header", "frame head"), ("header", "payload"), ("frame head", "payload"), ("frame head", "frame head"),
    ("columns", "payload"), ("payload", "payload"),
)  # fmt: skip


def _flip_in(file: FilePlaces, kind: str, chance: random.Random, *, last: bool = False) -> Fault:
    """Flip bits in a part of a file, in the `last` one of its kind or in any."""
    ranges = zones_of(file)[kind]
    begin, end = ranges[-1] if last else chance.choice(ranges)
    return _flip_at(file.name, begin, end, kind, chance)


def _flip_at(
    name: str, begin: int, end: int, kind: str, chance: random.Random, counts: Sequence[int] = (1, 1, 2)
) -> Fault:
    bits = [(chance.randrange(begin, end), chance.randrange(8)) for _ in range(chance.choice(counts))]

    def flip(content: bytearray) -> None:
        for at, bit in bits:
            if at < len(content):
                content[at] ^= 1 << bit

    return Fault(f"flip {name} ({kind}) at {', '.join(f'{at} bit {bit}' for at, bit in bits)}", _changed(name, flip))


def _changed(name: str, change: Callable[[bytearray], object]) -> Callable[[Snapshot], Snapshot]:
    """A change of one file's bytes, if the file is still there."""

    def apply(state: Snapshot) -> Snapshot:
        if name not in state:
            return state
        content = bytearray(state[name])
        change(content)
        return {**state, name: bytes(content)}

    return apply


def _replaced(changes: dict[str, bytes | None]) -> Callable[[Snapshot], Snapshot]:
    """Files with other contents, or without one: removed."""

    def apply(state: Snapshot) -> Snapshot:
        after = {**state, **changes}
        return {name: content for name, content in after.items() if content is not None}

    return apply


def _spot(places: Places, chance: random.Random) -> tuple[str, int, int, str]:
    """A range of bytes of one kind: (file, begin, end, kind)."""
    if chance.random() < 0.03:
        return "STORE", 0, STORE_BYTES, "STORE"
    starts = _starts(places)
    if starts and chance.random() < 0.05:
        return chance.choice(starts), 0, 2 * BLOCK_BYTES, "START"
    if places.spares and chance.random() < 0.03:
        return chance.choice(places.spares), 0, 3 * BLOCK_BYTES, "spare"
    file = _pick(places, chance)
    zones = zones_of(file)
    kind = chance.choices(list(zones), [ZONES[kind] for kind in zones])[0]
    return file.name, *chance.choice(zones[kind]), kind


def _starts(places: Places) -> list[str]:
    """The files that say where the lanes' logs begin."""
    return [name for name in places.story.final if name.endswith("/START")]


def _pick(places: Places, chance: random.Random) -> FilePlaces:
    """A file in use: any of a lane, its first or its last."""
    lane = chance.choice(places.files).lane
    files = [file for file in places.files if file.lane == lane]
    return chance.choice((files[0], files[-1], chance.choice(files), chance.choice(files)))


def _flip(places: Places, chance: random.Random) -> Fault:
    return _flip_at(*_spot(places, chance), chance, (1, 1, 1, 2, 3))


def _block(places: Places, chance: random.Random) -> Fault:
    name, begin, end, kind = _spot(places, chance)
    size = chance.choice((512, 512, BLOCK_BYTES, BLOCK_BYTES, 4 * BLOCK_BYTES))
    at = chance.randrange(begin, end) // min(size, BLOCK_BYTES) * min(size, BLOCK_BYTES)
    filling = bytes(size) if chance.random() < 0.5 else chance.randbytes(size)

    def fill(content: bytearray) -> None:
        kept = max(0, min(size, len(content) - at))
        content[at : at + kept] = filling[:kept]

    what = "garbage" if any(filling) else "zeros"
    return Fault(f"{size} bytes of {what} in {name} ({kind}) at {at}", _changed(name, fill))


def _cut(places: Places, chance: random.Random) -> Fault:
    file = _pick(places, chance)
    size = len(places.story.final[file.name])
    inside = (chance.randrange(size), chance.randrange(size))
    whole = chance.choice((0, chance.randrange(2 * BLOCK_BYTES), *inside, size - chance.randrange(1, 20)))
    if chance.random() < 0.4:
        whole &= -BLOCK_BYTES

    def cut(content: bytearray) -> None:
        del content[whole:]

    return Fault(f"cut {file.name} of {size} bytes to {whole}", _changed(file.name, cut))


def _lose(places: Places, chance: random.Random) -> Fault | None:
    kind = chance.random()
    if kind < 0.05:
        return Fault("remove STORE", _replaced({"STORE": None}))
    if kind < 0.15:
        lane = chance.choice(places.files).name.partition("/")[0]
        names = [name for name in places.story.final if name.startswith(f"{lane}/")]
        kept = chance.random() < 0.3
        gone = [name for name in names if not (kept and name.endswith("/"))]
        return Fault(f"remove {lane}{'/*' if kept else ''}", _replaced(dict.fromkeys(gone)))
    if kind < 0.3:
        names = places.spares if kind < 0.25 else _starts(places)
        if not names:
            return None
        name = chance.choice(names)
    else:
        name = _pick(places, chance).name
    return Fault(f"remove {name}", _replaced({name: None}))


def _exchange(places: Places, chance: random.Random) -> Fault | None:
    names = [file.name for file in places.files] + places.spares
    if len(names) < 2:
        return None
    first, second = chance.sample(names, 2)
    contents = places.story.final
    if chance.random() < 0.7:
        swap = {first: contents[second], second: contents[first]}
        return Fault(f"exchange {first} and {second}", _replaced({**swap}))
    return Fault(f"copy {second} over {first}", _replaced({first: contents[second]}))


def _old_copy(places: Places, chance: random.Random) -> Fault | None:
    final = places.story.final
    copies = [
        (number, name, content)
        for number, moment in enumerate(places.story.moments[:-1])
        for name, content in moment.items()
        if name in final and content != final[name] and name.endswith((".seg", "/START"))
    ]
    if not copies:
        return None
    number, name, content = chance.choice(copies)
    return Fault(f"put back {name} as of moment {number}", _replaced({name: content}))


def _foreign(places: Places, other: Places, chance: random.Random) -> Fault:
    theirs = _pick(other, chance).name
    same = theirs if theirs.partition("/")[0] + "/" in places.story.final else None
    mine = chance.choice((same, None)) or _pick(places, chance).name
    if chance.random() < 0.2:
        mine = theirs = "STORE"
    content = other.story.final[theirs]
    return Fault(f"{theirs} of the store ({other.story.plan}) as {mine}", _replaced({mine: content}))
