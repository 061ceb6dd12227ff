"""What an opened store gives, read in every way, each message compared with what was acknowledged.

`Broken` is a promise that was not kept. A `StoreCorrupt` is none by itself: the caller knows what may be damaged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from store import MessageBatch, MessageStore, StoreCorrupt, StoreError
from tests.store.helpers import Queue

from .stories import EMPTY, PREFIX, SALT, Story, Told, has_extras, same_extras

PROBES = 24  # single reads of a queue's messages around damage
PREFIX_COLUMNS = np.dtype([("number", "<u2"), ("offset", "<u4"), ("salt", "<u2")])
LOST_NAME = "lost-name-"


class Broken(Exception):
    """A promise of the store was not kept. `kind` is the same for findings that are likely one and the same."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass
class Expected:
    """What may be read: the story's messages, and those appended since (`added`: queue, offset -> data)."""

    story: Story
    added: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name: dict[Queue, Told] = {told.name: told for told in self.story.queues}

    def payload(self, told: Told, offset: int) -> bytes | None:
        """The right bytes of an offset; None where there can be no message."""
        data = self.added.get((told.number, offset))
        if data is None and 0 <= offset < len(told.lengths):
            return told.payload(offset)
        return data

    def check(self, told: Told, offset: int, data: bytes | memoryview, how: str) -> None:
        """Raises Broken unless these are the bytes of this message."""
        right = self.payload(told, offset)
        if right is None:
            raise Broken("a message that nobody sent", f"{how}: {told.name} at offset {offset}")
        if bytes(data) != right:
            raise Broken("other bytes", f"{how}: {told.name} at offset {offset} has {_say(data)}")

    def check_batch(self, told: Told, batch: MessageBatch, how: str, picked: npt.NDArray[np.intp]) -> None:
        """The same of these messages of a batch, in columns where they are many."""
        offsets, lengths = batch.offsets[picked], batch.lengths[picked]
        plain = (lengths == PREFIX.size) & (offsets < len(told.lengths)) & (told.number != EMPTY)
        if plain.sum() > 32 and not self.added:
            buffer = np.frombuffer(batch.buffer, np.uint8)
            at = batch.positions[picked][plain][:, None] + np.arange(PREFIX.size)
            rows = np.ascontiguousarray(buffer[at]).view(PREFIX_COLUMNS)[:, 0]
            wanted = np.array(told.lengths)[offsets[plain]] == PREFIX.size
            right = (rows["number"] == told.number) & (rows["offset"] == offsets[plain]) & (rows["salt"] == SALT)
            if not (right & wanted).all():
                wrong = int(np.flatnonzero(~(right & wanted))[0])
                raise Broken("other bytes", f"{how}: {told.name} at offset {offsets[plain][wrong]} has {rows[wrong]}")
            picked = picked[~plain]
        for index in picked.tolist():
            self.check(told, int(batch.offsets[index]), batch.payload(index), how)


def _say(data: bytes | memoryview) -> str:
    """Which message these bytes are."""
    if len(data) < PREFIX.size:
        return f"{bytes(data)!r}"
    number, offset, salt = PREFIX.unpack_from(data)
    return f"the bytes of queue {number}, offset {offset}" if salt == SALT else f"{bytes(data[:16])!r} .."


class Reading:
    """All that can be read of an opened store: `got[q]` says which offsets, `bounds[q]` its bounds or None.

    `errors` are the files that a StoreCorrupt named.
    """

    def __init__(self, store: MessageStore, expected: Expected, chance: random.Random) -> None:
        self._store = store
        self._expected = expected
        self._chance = chance
        self.errors: dict[str, str] = {}
        self.got: list[set[int]] = []
        self.bounds: list[tuple[int, int] | None] = []
        self.refused: list[set[int]] = []  # offsets that a single read refused
        self.lost_names: list[tuple[int, int]] = []  # (queue, offset) found under a lost name
        self.scanned: list[set[int]] | None = None
        for told in expected.story.queues:
            self._read_queue(told)
        self._scan()

    def _note(self, error: StoreCorrupt) -> None:
        self.errors.setdefault(error.file, str(error))

    def _read_queue(self, told: Told) -> None:
        got: set[int] = set()
        self.got.append(got)
        self.refused.append(set())
        try:
            first, end = self._store.queue_bounds(*told.name)
        except StoreCorrupt as error:
            self._note(error)
            self.bounds.append(None)
            return
        self.bounds.append((first, end))
        at, size, stride = first, 4096, 1
        while at < end:
            try:
                batch = self._store.read_batch(*told.name, at, size)
            except StoreCorrupt as error:
                self._note(error)
                if size > 1:
                    size //= 16
                else:
                    self.refused[told.number].add(at)
                    at, stride = at + stride, min(stride * 2, 256)
                continue
            if not len(batch):
                break
            self._check_order(told, batch.offsets.tolist(), at, end)
            self._expected.check_batch(told, batch, "read_batch", np.arange(len(batch)))
            got.update(batch.offsets.tolist())
            at, size, stride = int(batch.offsets[-1]) + 1, min(4096, size * 16), 1
        self._probe(told, first, end)

    def _check_order(self, told: Told, offsets: list[int], at: int, end: int) -> None:
        if offsets != sorted(set(offsets)) or offsets[0] < at or offsets[-1] >= end:
            raise Broken("offsets out of order", f"{told.name} from {at} of {end}: {offsets[:5]} .. {offsets[-5:]}")

    def _probe(self, told: Told, first: int, end: int) -> None:
        """Single reads by `get_range` and `read`, most of them of what was not read yet."""
        left = [at for at in range(first, end) if at not in self.got[told.number]]
        wanted = self._chance.sample(left, min(len(left), PROBES))
        wanted += [self._chance.randrange(first, end) for _ in range(3 if end > first else 0)]
        for at in wanted:
            self.probe(told, at)

    def probe(self, told: Told, at: int) -> bool:
        """Is the message at an offset there? Raises Broken if what is there is wrong."""
        try:
            found = self._store.get_range(*told.name, at, 1)
            for index, data in found.items():
                self._expected.check(told, at + index, data, "get_range")
            messages = self._store.read(*told.name, at, 1)
        except StoreCorrupt as error:
            self._note(error)
            self.refused[told.number].add(at)
            return False
        for message in messages:
            self._expected.check(told, message.offset, message.data, "read")
            old = (told.number, message.offset) not in self._expected.added
            if old and has_extras(told.number) and not same_extras(message):
                raise Broken("other key, properties or delivery time", f"{told.name} at offset {message.offset}")
        offsets = [message.offset for message in messages]
        if offsets != [at + index for index in found]:
            raise Broken("read and get_range differ", f"{told.name} at offset {at}: {list(found)}, {offsets}")
        self.got[told.number].update(offsets)
        return at in offsets

    def _scan(self) -> None:
        seen: list[set[int]] = [set() for _ in self.got]
        last: dict[Queue, int] = {}
        try:
            for batch in self._store.scan():
                for stream in np.unique(batch.stream_index).tolist():
                    name = batch.stream_names[stream]
                    picked = np.flatnonzero(batch.stream_index == stream)
                    offsets = batch.offsets[picked].tolist()
                    if offsets != sorted(set(offsets)) or offsets[0] <= last.get(name, -1):
                        raise Broken("scan gives offsets out of order", f"{name}: {offsets[:5]} after {last.get(name)}")
                    last[name] = offsets[-1]
                    told = self._expected.by_name.get(name)
                    if told is None:
                        self._lost_name(name, batch, picked)
                    else:
                        self._expected.check_batch(told, batch, "scan", picked)
                        seen[told.number].update(offsets)
        except StoreCorrupt as error:
            self._note(error)
            return
        self.scanned = seen

    def _lost_name(self, name: Queue, batch: MessageBatch, picked: npt.NDArray[np.intp]) -> None:
        """Messages of a queue whose name is lost: which ones they are, their bytes say."""
        for index in picked.tolist():
            data, offset = batch.payload(index), int(batch.offsets[index])
            if not name[0].startswith(LOST_NAME):
                raise Broken("a queue that nobody made", f"{name} at offset {offset}")
            if not len(data):
                self.lost_names.append((EMPTY, offset))
                continue
            told = self._expected.story.queues[PREFIX.unpack_from(data)[0]]
            self._expected.check(told, offset, data, f"scan, {name}")
            self.lost_names.append((told.number, offset))

    def all_got(self) -> list[set[int]]:
        """What was read in any way."""
        found = [set(mine) for mine in self.got]
        if self.scanned is not None:
            for number, seen in enumerate(self.scanned):
                found[number] |= seen
        for number, offset in self.lost_names:
            found[number].add(offset)
        return found


def append_everywhere(store: MessageStore, expected: Expected, reading: Reading) -> dict[tuple[int, int], bytes]:
    """Append to every queue; the new messages by queue and offset. Raises Broken for an offset that is not the next."""
    added: dict[tuple[int, int], bytes] = {}
    for told in expected.story.queues:
        bounds = reading.bounds[told.number]
        data = PREFIX.pack(told.number, 0xFFFFFFFF, SALT) + b"appended %d" % len(expected.added)
        try:
            offset = store.append(*told.name, data)
        except StoreError as error:
            raise Broken("an append is refused", f"{told.name}: {type(error).__name__}: {error}") from error
        if bounds is not None and offset != bounds[1]:
            raise Broken("an append got another offset than the next", f"{told.name}: {offset}, bounds were {bounds}")
        if offset in reading.got[told.number]:
            raise Broken("an offset that is in use was given again", f"{told.name}: {offset}")
        expected.added[told.number, offset] = added[told.number, offset] = data
    for (number, offset), data in added.items():
        name = expected.story.queues[number].name
        try:
            found = store.get_range(*name, offset, 1)
        except StoreCorrupt as error:
            raise Broken("a new message is not read back", f"{name} at offset {offset}: {error}") from error
        if found != {0: data}:
            raise Broken("a new message is not read back", f"{name} at offset {offset}: {found}")
    return added
