"""QueryMessage: messages of a topic by id, by key, or by their times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from stratalog import OffsetOutOfRange

from ...wire import CLASSES, Code
from ..naming import check_not_own
from ..statuses import OK, Refused, no_topic
from ..times import ms_of
from ..translating import message_of
from .message_index import MessageIndex

if TYPE_CHECKING:
    from stratalog import Message, MessageStore

_ANSWER: Final = CLASSES["ListMessageResponse"]
WINDOW: Final = 100_000  # messages of a topic that are found by id or key
MOST_TOPICS: Final = 16  # indexes that are kept
MOST_MESSAGES: Final = 256
USUAL_MESSAGES: Final = 32
MOST_BYTES: Final = 32 << 20
NEVER_MS: Final = 1 << 62


class Querying:
    """Finds messages. The store is read in threads, one question of a topic after the other."""

    def __init__(self, store: MessageStore, window: int = WINDOW) -> None:
        self._store = store
        self._window = window
        self._indexes: dict[str, tuple[MessageIndex, asyncio.Lock]] = {}

    async def query_message(self, request: Any, context: Any) -> Any:
        """Messages by id or key, of the newest 100,000 of the topic; without either, those of the times."""
        topic = request.topic.name
        check_not_own(topic)
        if not self._store.queues(topic):
            raise no_topic(topic)
        kind = request.WhichOneof("search_key")
        if kind in ("subscription", "lite_topic"):
            raise Refused(Code.UNSUPPORTED, f"messages are found by message_id or message_key, not by {kind}")
        if kind is None:
            found = await asyncio.to_thread(_wanted, request, self._of_times(request))
        else:
            index, lock = self._index(topic)
            ask = index.by_id if kind == "message_id" else index.by_key
            async with lock:
                found = await asyncio.to_thread(lambda: _wanted(request, ask(getattr(request, kind))))
        return _ANSWER(status=OK, messages=[message_of(one) for one in found])

    def _index(self, topic: str) -> tuple[MessageIndex, asyncio.Lock]:
        """The index of a topic; of many topics those that were asked for last are kept."""
        known = self._indexes.pop(topic, None) or (MessageIndex(self._store, topic, self._window), asyncio.Lock())
        self._indexes[topic] = known
        if len(self._indexes) > MOST_TOPICS:
            del self._indexes[next(iter(self._indexes))]
        return known

    def _of_times(self, request: Any) -> Iterator[Message]:
        topic = request.topic.name
        for queue_id in self._store.queues(topic):
            if request.HasField("queue_id") and queue_id != request.queue_id:
                continue
            at = self._store.offset_at(topic, queue_id, max(0, ms_of(request.begin_timestamp)))
            while True:
                try:
                    found = self._store.read(topic, queue_id, at, max_messages=MOST_MESSAGES, max_bytes=MOST_BYTES)
                except OffsetOutOfRange as error:
                    if error.first <= at:
                        break
                    at = error.first
                    continue
                if not found:
                    break
                yield from found
                at = found[-1].offset + 1
                if request.HasField("end_timestamp") and found[-1].timestamp_ms > ms_of(request.end_timestamp):
                    break


def _wanted(request: Any, messages: Iterable[Message]) -> list[Message]:
    """Those within the times and the queue that are asked for, as many as fit into an answer."""
    begin_ms = ms_of(request.begin_timestamp)
    end_ms = ms_of(request.end_timestamp) if request.HasField("end_timestamp") else NEVER_MS
    most = request.max_message_nums or USUAL_MESSAGES
    found: list[Message] = []
    size = 0
    for message in messages:
        of_queue = not request.HasField("queue_id") or message.queue_id == request.queue_id
        if of_queue and begin_ms <= message.timestamp_ms <= end_ms:
            size += len(message.data)
            if found and size > MOST_BYTES:
                break
            found.append(message)
            if len(found) >= min(max(1, most), MOST_MESSAGES):
                break
    return found
