"""What an opened store gives, read in every way, each message compared with what was acknowledged.

`Broken` is a promise that was not kept. A `StoreCorrupt` is none by itself: the caller knows what may be damaged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stratalog.store import MessageBatch, MessageStore, StoreCorrupt, StoreError
from stratalog.store.format.message_ids import digest_of
from tests.store.helpers import Queue

from .stories import BULK, EMPTY, EVENTS, NAMES, PREFIX, SALT, Story, Told, extras_of, has_extras, same_extras

PROBES = 12  # single reads of a queue's messages around damage
MOST_ADDED = 16  # messages that a case appends to a queue, at the most
BULK_NAME = NAMES[BULK]
PREFIX_COLUMNS = np.dtype([("number", "<u2"), ("offset", "<u4"), ("salt", "<u2")])
LOST_NAME = "lost-name-"
Bools = npt.NDArray[np.bool_]


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

    def check(self, told: Told, offset: int, data: bytes | memoryview, how: str) -> None:
        """Raises Broken unless these are the bytes of this message."""
        right = self.added.get((told.number, offset)) if self.added else None
        if right is None and 0 <= offset < len(told.lengths):
            right = told.payloads[offset]
        if right is None:
            raise Broken("a message that nobody sent", f"{how}: {told.name} at offset {offset}")
        if bytes(data) != right:
            raise Broken("other bytes", f"{how}: {told.name} at offset {offset} has {_say(data)}")

    def check_batch(self, told: Told, batch: MessageBatch, how: str) -> None:
        """The same of all messages of a batch, which are of this queue; in columns where they are many."""
        offsets, lengths = batch.offsets, batch.lengths
        if len(offsets) > 64 and not self.added and told.number == BULK and (lengths == PREFIX.size).all():
            buffer = np.frombuffer(batch.buffer, np.uint8)
            at = batch.positions[:, None] + np.arange(PREFIX.size)
            rows = np.ascontiguousarray(buffer[at]).view(PREFIX_COLUMNS)[:, 0]
            right = (rows["number"] == told.number) & (rows["offset"] == offsets) & (rows["salt"] == SALT)
            if not right.all() or int(offsets[-1]) >= len(told.lengths):
                wrong = int(np.flatnonzero(~right)[0])
                raise Broken("other bytes", f"{how}: {told.name} at offset {offsets[wrong]} has {rows[wrong]}")
            return
        for offset, data in zip(offsets.tolist(), batch.payloads(), strict=True):
            self.check(told, offset, data, how)

    def is_record(self, data: bytes | memoryview, offset: int) -> bool:
        """Is what is found under a lost name a record of the store's own, whose stream has lost its name as well?

        A copy of a delayed message, which retention leaves, has its bytes, and an offset of another stream.
        """
        if not (len(data) and self.story.plan.records):
            return False
        number, own, salt = PREFIX.unpack_from(bytes(data[: PREFIX.size]).ljust(PREFIX.size, b"\0"))
        if salt != SALT:
            return True
        payloads = self.story.queues[number].payloads if number < len(self.story.queues) else []
        is_delayed = has_extras(number) and extras_of(own)["deliver_at_ms"] is not None
        return is_delayed and own != offset and own < len(payloads) and bytes(data) == payloads[own]

    def check_low_bits(self, batch: MessageBatch) -> None:
        """Raises Broken unless each message was sent to its queue, at an offset with the same low 16 bits."""
        names = batch.stream_names
        rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
        for stream, offset, data in rows:
            name = names[stream]
            number = _number_in(data)
            if name[0].startswith(LOST_NAME) and self.is_record(data, offset):
                continue
            told = self.by_name.get(name) or self.story.queues[number]
            lost_name = name[0].startswith(LOST_NAME)
            if told.number != number or not (lost_name or name == told.name):
                raise Broken("other bytes", f"{name} at offset {offset} has {_say(data)}")
            if bytes(data) not in told.payloads[offset & 0xFFFF :: 1 << 16]:
                raise Broken("other bytes", f"{name} at offset {offset} has {_say(data)}")


def _number_in(data: bytes | memoryview) -> int:
    """The number of the queue that a message says; those of the queue EMPTY have no bytes."""
    return int(PREFIX.unpack_from(bytes(data[: PREFIX.size]).ljust(PREFIX.size, b"\0"))[0]) if len(data) else EMPTY


def _say(data: bytes | memoryview) -> str:
    """Which message these bytes are."""
    if len(data) < PREFIX.size:
        return f"{bytes(data)!r}"
    number, offset, salt = PREFIX.unpack_from(data)
    return f"the bytes of queue {number}, offset {offset}" if salt == SALT else f"{bytes(data[:16])!r} .."


class Reading:
    """All that can be read of an opened store: `got[q][offset]` says which messages, `bounds[q]` a queue's bounds.

    `errors` are the files that a StoreCorrupt named, `refused` the offsets that a single read refused, `scanned` what
    a scan gave, None if it ended with an error; `forgotten_ids` the digests of ids that nothing knows. A `quick`
    reading scans, and reads few messages in other ways.
    """

    def __init__(self, store: MessageStore, expected: Expected, chance: random.Random, *, quick: bool = False) -> None:
        self._store = store
        self._expected = expected
        self._chance = chance
        self.errors: dict[str, str] = {}
        self.bounds: list[tuple[int, int] | None] = []
        self.got = self._nothing()
        self.refused: list[set[int]] = [set() for _ in self.got]
        self.lost_names: list[tuple[int, int]] = []  # (queue, offset) found under a lost name
        self.scanned: list[Bools] | None = self._nothing()
        self.forgotten_ids: set[bytes] = set()
        self._scan()
        for told in expected.story.queues:
            self._read_queue(told, quick=quick)
        self._look_at_ids()

    def _nothing(self) -> list[Bools]:
        # A repair may leave out as many offsets of a queue as messages of its lane are lost.
        more = sum(len(told.lengths) for told in self._expected.story.queues) + MOST_ADDED
        return [np.zeros(len(told.lengths) + more, np.bool_) for told in self._expected.story.queues]

    def _note(self, error: StoreCorrupt) -> None:
        self.errors.setdefault(error.file, str(error))

    def _look_at_ids(self) -> None:
        """An id leads to its own message, or is forgotten by a repair; or its damage is told."""
        ids = self._expected.story.ids
        if not ids:
            return
        try:
            window = self._store._windows.of(EVENTS)
        except StoreCorrupt as error:
            self._note(error)
            return
        for message_id, place in ids.items():
            digest = digest_of(message_id.encode())
            found = window._durable.find(digest)
            if found is None:
                self.forgotten_ids.add(digest)
            elif found != tuple(place):
                raise Broken("an id leads to another message", f"{message_id} of {place}: {found}")

    # -- queue by queue -------------------------------------------------------------------------------

    def _read_queue(self, told: Told, *, quick: bool) -> None:
        try:
            first, end = self._store.queue_bounds(*told.name)
        except StoreCorrupt as error:
            self._note(error)
            self.bounds.append(None)
            return
        self.bounds.append((first, end))
        got = self.got[told.number]
        if end > len(got):
            raise Broken("bounds beyond all that was sent", f"{told.name}: {first, end}")
        if not quick:
            self._sweep(told, first, end)
        elif self.scanned is not None:
            got |= self.scanned[told.number]
        left = np.flatnonzero(~got[first:end]) + first
        wanted = self._chance.sample(left.tolist(), min(len(left), PROBES))
        wanted += [self._chance.randrange(first, end) for _ in range(3 if end > first else 0)]
        for at in wanted:
            self.probe(told, at)

    def _sweep(self, told: Told, first: int, end: int) -> None:
        """Read from the first to the last offset, in smaller and smaller batches where one is refused."""
        at, size, stride = first, 4096, 1
        while at < end:
            try:
                batch = self._store.read_batch(*told.name, at, max_messages=size)
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
            offsets = batch.offsets
            if (np.diff(offsets) <= 0).any() or offsets[0] < at or offsets[-1] >= end:
                raise Broken("offsets out of order", f"{told.name} from {at}, end {end}: {offsets[:5]} {offsets[-5:]}")
            self._expected.check_batch(told, batch, "read_batch")
            self.got[told.number][offsets] = True
            at, size, stride = int(offsets[-1]) + 1, min(4096, size * 16), 1

    def probe(self, told: Told, at: int) -> bool:
        """Is the message at an offset there? Raises Broken if what is there is wrong."""
        try:
            found = self._store.get_range(*told.name, at, 1)
            for index, data in found.items():
                self._expected.check(told, at + index, data, "get_range")
            messages = self._store.read(*told.name, at, max_messages=1)
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
        self.got[told.number][offsets] = True
        return at in offsets

    # -- in log order ---------------------------------------------------------------------------------

    def _scan(self) -> None:
        assert self.scanned is not None
        last: dict[Queue, int] = {}
        try:
            for batch in self._store.scan():
                streams = set(batch.stream_index.tolist())
                if len(streams) == 1 and batch.stream_names[streams.pop()] == BULK_NAME:
                    self._take_bulk(batch, last)
                else:
                    self._take(batch, last)
        except StoreCorrupt as error:
            self._note(error)
            self.scanned = None

    def _take_bulk(self, batch: MessageBatch, last: dict[Queue, int]) -> None:
        assert self.scanned is not None
        told, offsets = self._expected.by_name[BULK_NAME], batch.offsets
        if (np.diff(offsets) <= 0).any() or offsets[0] <= last.get(BULK_NAME, -1):
            raise Broken("scan gives offsets out of order", f"{BULK_NAME}: {offsets[:5]} after {last.get(BULK_NAME)}")
        last[BULK_NAME] = int(offsets[-1])
        self._expected.check_batch(told, batch, "scan")
        self.scanned[told.number][offsets] = True

    def _take(self, batch: MessageBatch, last: dict[Queue, int]) -> None:
        assert self.scanned is not None
        names = batch.stream_names
        rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
        for stream, offset, data in rows:
            name = names[stream]
            if offset <= last.get(name, -1):
                raise Broken("scan gives offsets out of order", f"{name}: {offset} after {last[name]}")
            last[name] = offset
            told = self._expected.by_name.get(name)
            if told is None:
                self._take_lost_name(name, offset, data)
            else:
                self._expected.check(told, offset, data, "scan")
                self.scanned[told.number][offset] = True

    def _take_lost_name(self, name: Queue, offset: int, data: memoryview) -> None:
        """A message of a queue whose name is lost: which one it is, its bytes say."""
        if not name[0].startswith(LOST_NAME):
            raise Broken("a queue that nobody made", f"{name} at offset {offset}")
        if self._expected.is_record(data, offset):
            return
        number = _number_in(data)
        self._expected.check(self._expected.story.queues[number], offset, data, f"scan, {name}")
        self.lost_names.append((number, offset))

    def all_got(self) -> list[Bools]:
        """What was read in any way."""
        found = [mine.copy() for mine in self.got]
        for number, seen in enumerate(self.scanned or []):
            found[number] |= seen
        for number, offset in self.lost_names:
            found[number][offset] = True
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
        if reading.got[told.number][offset]:
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
