"""Where the newest messages with an id or a key lie: an index of a window of each topic, made when it is asked.

It follows the topic's queues from where it was: the first question after an opening reads the window, each later one
only what is new. So sends cost nothing, and messages that programs append themselves are found as well. The index has
hashes alone; a message that it finds is read, and compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import xxhash

from stratalog import OffsetOutOfRange

from ..translating import KEYS, id_of

if TYPE_CHECKING:
    from stratalog import Message, MessageStore

Place: TypeAlias = tuple[int, int, int]  # time in milliseconds, queue id, offset

AT_ONCE: Final = 2048  # messages of a read
AT_ONCE_BYTES: Final = 4 << 20


def keys_of(message: Message) -> list[str]:
    """The keys that its client gave it; for one that a program has put into the store, the store's key."""
    properties = message.properties or {}
    if KEYS in properties:
        return properties[KEYS].split(" ")
    return [] if message.key is None else [message.key.decode(errors="replace")]


class MessageIndex:
    """The newest messages of a topic by id and by key. Not for several threads at once.

    Invariant: a place is in `_order` as often as it is in `_places`, once for each of its names.
    """

    def __init__(self, store: MessageStore, topic: str, window: int) -> None:
        """`window`: how many of the newest messages it knows at most, each queue having an equal share when it is first
        looked at; and half of how many names."""
        self._store = store
        self._topic = topic
        self._window = window
        self._next: dict[int, int] = {}  # of each queue, the first offset that is not looked at
        self._places: dict[int, list[Place]] = {}  # by the hash of a name
        self._order: deque[int] = deque()  # the hashes, oldest first

    def by_id(self, message_id: str) -> Iterator[Message]:
        """The messages with this id, newest first; each is read when it is its turn. Raises errors of the store."""
        return (one for one in self._found(_hash("id", message_id)) if id_of(one) == message_id)

    def by_key(self, key: str) -> Iterator[Message]:
        """The messages with this key, newest first; each is read when it is its turn. Raises errors of the store."""
        return (one for one in self._found(_hash("key", key)) if key in keys_of(one))

    def _found(self, name: int) -> Iterator[Message]:
        self._follow()
        for _, queue_id, offset in sorted(self._places.get(name, ()), reverse=True):
            try:
                yield from self._store.read(self._topic, queue_id, offset, max_messages=1)
            except OffsetOutOfRange:  # it was removed
                continue

    def _follow(self) -> None:
        """Look at what is new."""
        queues = self._store.queues(self._topic)
        share = max(1, self._window // max(1, len(queues)))
        for queue_id in queues:
            first, end = self._store.queue_bounds(self._topic, queue_id)
            known = self._next.get(queue_id, 0)
            at = max(first, end - share, known if known <= end else 0)
            while at < end:
                try:
                    found = self._store.read(
                        self._topic, queue_id, at, max_messages=min(AT_ONCE, end - at), max_bytes=AT_ONCE_BYTES
                    )
                except OffsetOutOfRange as error:  # the oldest were removed meanwhile
                    at = max(at + 1, error.first)
                    continue
                if not found:
                    break
                for message in found:
                    self._add(message, (message.timestamp_ms, queue_id, message.offset))
                at = found[-1].offset + 1
            self._next[queue_id] = max(at, end)

    def _add(self, message: Message, place: Place) -> None:
        for name in {_hash("id", id_of(message)), *(_hash("key", key) for key in keys_of(message))}:
            self._places.setdefault(name, []).append(place)
            self._order.append(name)
        while len(self._order) > 2 * self._window:
            oldest = self._order.popleft()
            places = self._places[oldest]
            del places[0]
            if not places:
                del self._places[oldest]


def _hash(kind: str, name: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{kind}\0{name}".encode(errors="surrogatepass"))
