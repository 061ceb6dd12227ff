"""Calls that append. They hand over in the order in which they came, and each answers when its messages are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from stratalog import MessageStore, StoreError, Ticket

from ..columns import Columns, columns_in
from ..failures import failure_to_json
from ..frames import BrokenFrame, Frame
from ..messages import MOST_ROWS, Given, given_in, properties_in, rows_in
from ..values import from_json

T = TypeVar("T")
UNKNOWN = -1  # as an offset: of a message that was not stored
MOST_NAMES = 64  # of a table of streams that is remembered
MOST_KEY = 8192  # characters of it: the store has not seen the names yet
MOST_TABLES = 256


class Aside(Protocol):
    """Makes a blocking call in a thread."""

    def __call__(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Its result, or its error, comes."""


class Appends:
    """The calls of one connection that append.

    Invariant: a call has handed its messages over when it calls `handed`; the next call of the connection begins after
    that. So the messages of a queue have the order in which the client sent them.
    """

    def __init__(self, store: MessageStore, aside: Aside) -> None:
        self._store = store
        self._aside = aside
        self._streams: dict[str, tuple[tuple[str, int], ...]] = {}

    async def submit(self, frame: Frame, handed: Callable[[], None]) -> Columns:
        """Messages of `append`, `submit` and their like, many in a frame: each has an offset or an error of its own."""
        if rows_in(frame.buffers) > MOST_ROWS:
            raise BrokenFrame(f"a frame of single messages has at most {MOST_ROWS}")
        rows = given_in(frame.header, frame.buffers)
        if any([one.message_id is not None for one in rows]):
            found: Sequence[Awaitable[int] | StoreError] = await self._aside(lambda: self._submitted(rows))
        else:
            found = self._appended(rows)
        handed()
        return await _answered(found)

    def _appended(self, rows: Sequence[Given]) -> list[Awaitable[int] | StoreError]:
        """Hand messages over, without a wait."""
        found: list[Awaitable[int] | StoreError] = []
        append = self._store.append_async
        for topic, queue_id, data, time, key, properties, queues, _ in rows:
            try:
                if key is None and properties is None and time is None and queues is None:
                    found.append(append(topic, queue_id, data))
                    continue
                found.append(
                    append(topic, queue_id, data, deliver_at_ms=time, key=key, properties=properties_in(properties),
                           queues=queues)
                )  # fmt: skip
            except StoreError as error:
                found.append(error)
        return found

    def _submitted(self, rows: Sequence[Given]) -> list[Ticket | StoreError]:
        """Hand messages over, some of them with ids: a ticket says whether nothing was stored. It may wait for room."""
        found: list[Ticket | StoreError] = []
        for topic, queue_id, data, time, key, properties, queues, message_id in rows:
            try:
                found.append(
                    self._store.submit(
                        topic, queue_id, data, deliver_at_ms=time, key=key, properties=properties_in(properties),
                        queues=queues, message_id=message_id,
                    )
                )  # fmt: skip
            except StoreError as error:
                found.append(error)
        return found

    async def submit_odd(self, frame: Frame, handed: Callable[[], None]) -> Columns:
        """One message whose arguments are not what they should be: the store says so."""
        given = from_json(frame.header["given"])

        def submit() -> list[Ticket | StoreError]:
            try:
                return [self._store.submit(**given)]
            except StoreError as error:
                return [error]

        found = await self._aside(submit)
        handed()
        return await _answered(found)

    async def append_columns(self, frame: Frame, handed: Callable[[], None]) -> Columns:
        """The columns of `append_columns`."""
        columns = columns_in(frame.header, frame.buffers)
        columns = columns._replace(streams=self._interned(frame.header["streams"], columns.streams))
        future = self._store.append_columns_async(*columns)
        handed()
        return Columns({}, [await future])

    def _interned(self, given: Sequence[Any], streams: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
        """The tuple that an earlier call had for these names: the store has looked them up."""
        key = repr(given) if len(given) <= MOST_NAMES else ""
        if not 0 < len(key) <= MOST_KEY:
            return streams
        if len(self._streams) >= MOST_TABLES:
            self._streams.clear()
        return self._streams.setdefault(key, tuple(streams))

    async def append_batch(self, frame: Frame, handed: Callable[[], None]) -> Columns:
        """The rows of `append_batch` with message ids, or with rows that the store is to refuse."""
        rows, ids = from_json(frame.header["rows"]), from_json(frame.header["ids"])
        if rows is None:
            given = await given_aside(self._aside, frame)
            rows = [(one.topic, one.queue_id, one.data) for one in given]
        future = self._store.append_batch_async(rows, message_ids=ids)
        handed()
        return Columns({}, [await future])


async def given_aside(aside: Aside, frame: Frame) -> list[Given]:
    """The messages of a frame, of which there may be a million: then not on the loop."""
    if rows_in(frame.buffers) <= MOST_ROWS:
        return given_in(frame.header["given"], frame.buffers)
    return await aside(lambda: given_in(frame.header["given"], frame.buffers))


async def _answered(found: Sequence[Awaitable[int] | StoreError]) -> Columns:
    """Wait for all outcomes."""
    offsets = np.full(len(found), UNKNOWN, np.int64)
    errors: list[tuple[int, Mapping[str, Any]]] = []
    repeats: list[int] = []
    try:
        for at, one in enumerate(found):
            try:
                if isinstance(one, StoreError):
                    raise one
                offsets[at] = await one
            except StoreError as error:
                errors.append((at, failure_to_json(error)))
            if isinstance(one, Ticket) and one.done() and one.exception() is None and one.is_repeat:
                repeats.append(at)
    finally:
        for one in found:  # the connection is gone: nobody asks for their errors
            if isinstance(one, asyncio.Future):
                one.cancel()
    header: dict[str, Any] = {"errors": errors} if errors else {}
    if repeats:
        header["repeats"] = repeats
    return Columns(header, [offsets])
