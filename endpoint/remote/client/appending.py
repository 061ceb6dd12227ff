"""The calls that append, with the names and arguments of `MessageStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stratalog import InvalidMessage, MessageColumns, Payload

from ..columns import columns_out, numbers_in, properties_out
from ..failures import failure_from_json
from ..messages import Given, given_out
from ..values import to_json
from .connection import Asked
from .link import TRIES, Link
from .promises import Answer, LoopAnswer
from .tickets import RemoteBatchTicket, RemoteTicket

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    AnyBuffer = ReadableBuffer | npt.NDArray[Any]
    BytesColumn = tuple[npt.ArrayLike, AnyBuffer]

Int64s = npt.NDArray[np.int64]
Queues = int | Sequence[int]
Streams = Sequence[tuple[str, int]]
_PAYLOADS = (bytes, bytearray, memoryview)
_MOST_NUMBER = 1 << 62


class Appending:
    """Sends what is to be appended. A message alone goes with others that wait, many in a frame."""

    _link: Link

    def append(
        self, topic: str, queue_id: int | None = None, data: Payload | None = None, *,
        deliver_at_ms: int | None = None, key: bytes | None = None, properties: Mapping[str, str] | None = None,
        queues: Queues | None = None, message_id: str | None = None,
    ) -> int:  # fmt: skip
        """Append one message; return its offset when it is durable. Args and errors: as for `MessageStore.append`.

        Raises: ConnectionLost, too: the message may be stored, or not. With a `message_id` it is sent again by itself,
        and stored once.
        """
        return self.submit(
            topic, queue_id, data, deliver_at_ms=deliver_at_ms, key=key, properties=properties, queues=queues,
            message_id=message_id,
        ).result()  # fmt: skip

    def submit(
        self, topic: str, queue_id: int | None = None, data: Payload | None = None, *,
        deliver_at_ms: int | None = None, key: bytes | None = None, properties: Mapping[str, str] | None = None,
        queues: Queues | None = None, message_id: str | None = None,
    ) -> RemoteTicket:  # fmt: skip
        """Hand one message over and return a ticket at once; `ticket.result()` waits for the message's offset.

        It waits only while 64 MiB of messages have no answer yet. What the store refuses, `result` raises. A process
        that ends without `close` may lose messages whose tickets are not done. Args: as for `MessageStore.submit`.

        Raises: StoreClosed; InvalidMessage for what cannot be sent.
        """
        ticket = RemoteTicket(self._link.answers_lock, self._link.callbacks)
        given = (topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)
        message = plain(*given)
        if message is not None:
            self._link.submit(message, ticket, waits=True)
        else:
            self._link.send(_odd(given, ticket))
        return ticket

    def append_async(
        self, topic: str, queue_id: int | None = None, data: Payload | None = None, *,
        deliver_at_ms: int | None = None, key: bytes | None = None, properties: Mapping[str, str] | None = None,
        queues: Queues | None = None, message_id: str | None = None,
    ) -> asyncio.Future[int]:  # fmt: skip
        """`append` for coroutines: hand one message over and return a Future of its offset. Errors: as for `append`.

        A cancelled append may be stored all the same.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        settled = _OffsetAnswer(future, loop)
        given = (topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)
        message = plain(*given)
        if message is not None:
            self._link.submit(message, settled, waits=False)
        else:
            self._link.send(_odd(given, settled))
        return future

    def append_batch(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> Int64s:
        """Append many messages; return their offsets when all are durable. They travel in columns.

        Args, result and errors: as for `MessageStore.append_batch`; and ConnectionLost: some may be stored. If each has
        an id, they are sent again by themselves, and stored once.
        """
        found: Int64s = _wait(self._link.ask(**_batch(messages, message_ids), appends=True))
        return found

    def append_batch_async(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> asyncio.Future[Int64s]:
        """`append_batch` for coroutines: a Future of the offsets."""
        return self._link.ask_in_loop(**_batch(messages, message_ids))

    def append_columns(
        self, streams: Streams, stream_index: npt.ArrayLike, lengths: npt.ArrayLike, payload: AnyBuffer,
        keys: BytesColumn | None = None, properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> Int64s:  # fmt: skip
        """Append n messages given as columns; return their offsets when all are durable.

        Args, result and errors: as for `MessageStore.append_columns`; and ConnectionLost: some may be stored.
        """
        asked = _columns(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        found: Int64s = _wait(self._link.ask(**asked, appends=True))
        return found

    def submit_columns(
        self, streams: Streams, stream_index: npt.ArrayLike, lengths: npt.ArrayLike, payload: AnyBuffer,
        keys: BytesColumn | None = None, properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> RemoteBatchTicket:  # fmt: skip
        """Hand n messages over as columns and return a ticket; `ticket.result()` waits for their offsets.

        Do not write to the buffers before it is done. Args: as for `MessageStore.submit_columns`.
        """
        asked = _columns(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        return RemoteBatchTicket(self._link.ask(**asked, appends=True), self._link.callbacks)

    def append_columns_async(
        self, streams: Streams, stream_index: npt.ArrayLike, lengths: npt.ArrayLike, payload: AnyBuffer,
        keys: BytesColumn | None = None, properties: BytesColumn | None = None,
        deliver_at_ms: npt.ArrayLike | None = None,
    ) -> asyncio.Future[Int64s]:  # fmt: skip
        """`append_columns` for coroutines: a Future of the offsets."""
        asked = _columns(streams, stream_index, lengths, payload, keys, properties, deliver_at_ms)
        return self._link.ask_in_loop(**asked)


class _OffsetAnswer(LoopAnswer):
    """The answer of an `append_async`: of the offset, and whether nothing was stored, the offset."""

    def settle(self, value: Any, error: Any, wakes: Any) -> None:
        """See `Settled`."""
        super().settle(None if value is None else value[0], error, wakes)


def _wait(answer: Answer[Any]) -> Any:
    answer.wait()
    return answer.get()


def plain(
    topic: Any, queue_id: Any, data: Any, time: Any, key: Any, properties: Any, queues: Any, message_id: Any
) -> Given | None:
    """The message as it travels; None if an argument is of another type than most programs give."""
    if type(data) is not bytes:
        data = _bytes_of(data)
    is_plain = (
        type(topic) is str
        and data is not None
        and (queue_id is None or _is_number(queue_id))
        and (key is None or type(key) is bytes)
        and (queues is None or _is_number(queues))
        and (time is None or (_is_number(time) and time >= 0))
        and (message_id is None or type(message_id) is str)
        and (properties is None or _are_properties(properties))
    )
    return Given(topic, queue_id, data, time, key, properties_out(properties), queues, message_id) if is_plain else None


def _is_number(value: object) -> bool:
    """Whether it is an int that all the way down is one: others go alone, as they may not even be JSON."""
    return type(value) is int and -_MOST_NUMBER < value < _MOST_NUMBER


def _bytes_of(data: object) -> bytes | None:
    """A copy of a payload; None if it is none."""
    try:
        return memoryview(data).tobytes() if isinstance(data, _PAYLOADS) else None
    except ValueError:
        raise InvalidMessage("data is a memoryview that was released") from None


def _are_properties(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(name, str) and isinstance(value, str) for name, value in given.items()
    )


_NAMES = ("topic", "queue_id", "data", "deliver_at_ms", "key", "properties", "queues", "message_id")


def _odd(given: Sequence[object], settled: Any) -> Asked:
    """A message with an argument that is not plain: it may be wrong, and then the store says so."""
    header = {"call": "submit_odd", "given": to_json(dict(zip(_NAMES, given, strict=True)))}
    return Asked(header, (), settled, _offset_of, True)


def _offset_of(header: dict[str, Any], buffers: list[memoryview]) -> tuple[int, bool]:
    for _, error in header.get("errors", ()):
        raise failure_from_json(error)
    return int(numbers_in(buffers[0])[0]), bool(header.get("repeats"))


def offsets_of(header: dict[str, Any], buffers: list[memoryview]) -> Int64s:
    """The offsets of an answer, which outlive its buffer."""
    return numbers_in(buffers[0]).copy()


def _columns(
    streams: Any, stream_index: Any, lengths: Any, payload: Any, keys: Any, properties: Any, times: Any
) -> dict[str, Any]:
    """A call of `append_columns`. Arrays that the store would refuse travel as they are."""
    try:
        table: Any = [[to_json(part) for part in one] for one in streams]
        index, sizes = integers(stream_index), integers(lengths)
        blobs: list[Any] = [
            None if one is None else (integers(one[0]), memoryview(one[1])) for one in (keys, properties)
        ]
        due = None if times is None else integers(times)
        data = memoryview(payload)
        if not all(one.contiguous for one in (data, *(blob[1] for blob in blobs if blob is not None))):
            raise InvalidMessage("a buffer is not contiguous")
        columns = MessageColumns(table, index, sizes, data, blobs[0], blobs[1], due)
        header, buffers = columns_out(columns)
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidMessage(f"these are no columns: {error}") from None
    return {"call": "append_columns", "convert": offsets_of, "buffers": buffers, **header}


def integers(given: Any) -> Int64s:
    """int64 (n) of integers of any type. Raises InvalidMessage."""
    found = np.asarray(given)
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InvalidMessage("a column has masked elements")
    if found.ndim != 1 or not (np.issubdtype(found.dtype, np.integer) or not len(found)):
        raise InvalidMessage(f"a column is integers (n,), not {found.dtype} with {found.ndim} dimensions")
    return np.ascontiguousarray(found, np.int64)


def _batch(messages: Iterable[Any], message_ids: Iterable[Any] | None) -> dict[str, Any]:
    """A call of `append_batch`: as columns if no row has an id."""
    try:
        rows = list(messages)
        ids = None if message_ids is None else list(message_ids)
    except TypeError as error:
        raise InvalidMessage(f"messages are (topic, queue id, data) rows: {error}") from None
    given = rows_of(rows)
    tries = TRIES if ids and None not in ids else 0
    asked: dict[str, Any] = {"convert": offsets_of, "tries": tries}
    if given is None:
        return {**asked, "call": "append_batch", "rows": to_json([_sendable(row) for row in rows]), "ids": to_json(ids)}
    if ids is None and given:
        header, buffers = given_out(given)
        header["streams"] = [one[:2] for one in header["streams"]]
        return {**asked, "call": "append_columns", "buffers": buffers, **header}
    header, buffers = given_out(given)
    return {**asked, "call": "append_batch", "rows": None, "ids": to_json(ids), "given": header, "buffers": buffers}


def _sendable(row: object) -> object:
    return tuple(row) if isinstance(row, list | tuple) else row


def rows_of(rows: Sequence[Any]) -> list[Given] | None:
    """The rows as they travel; None if one of them is of another type than most programs give."""
    found = []
    for row in rows:
        if type(row) is not tuple or len(row) != 3:
            return None
        topic, queue_id, data = row
        if type(topic) is not str or type(queue_id) is not int:
            return None
        if type(data) is not bytes:
            if not isinstance(data, _PAYLOADS):
                return None
            data = memoryview(data).tobytes()
        found.append(Given(topic, queue_id, data))
    return found
