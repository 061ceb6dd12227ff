"""The results of reads: single messages, and batches in columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..format.blobs import gathered
from ..format.extras import Extras
from .columns import MessageColumns, columns_of_batch
from .tables import arrow_table, pandas_frame

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # where its stubs are not installed
    import pyarrow as pa

_PROPERTIES = json.JSONDecoder()  # of text: `json.loads` would look first how the bytes are encoded


@dataclass(frozen=True, slots=True)
class Message:
    """One durable message.

    Attributes:
        topic, queue_id: its queue.
        offset: its offset in the queue.
        data: its bytes.
        timestamp_ms: when it was put into the log, ms since the epoch; of a bulk commit, when its task wrote it.
        deliver_at_ms: its delivery time as appended, ms since the epoch, or None. Subscriptions go by it,
            reads do not.
        key, properties: as appended, or None.
    """

    topic: str
    queue_id: int
    offset: int
    data: bytes
    timestamp_ms: int
    deliver_at_ms: int | None
    key: bytes | None
    properties: Mapping[str, str] | None


class _Draft:
    """A Message that is being made: it has the same slots, and they can be assigned to.

    The initializer of a frozen dataclass costs 1.9 us a message, and this way 0.4 us.
    """

    __slots__ = Message.__slots__

    def __init__(self, topic: str, queue_id: int, offset: int, data: bytes, time_ms: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.data = data
        self.timestamp_ms = time_ms
        self.deliver_at_ms: int | None = None
        self.key: bytes | None = None
        self.properties: Mapping[str, str] | None = None


class MessageBatch:
    """n messages as columns over one buffer.

    Attributes:
        buffer: the bytes that the positions point into.
        positions, lengths: int64 (n): payload i is buffer[positions[i] : positions[i] + lengths[i]].
        offsets: int64 (n), each message's offset in its queue.
        times_ms: int64 (n), when each message was put into the log, ms since the epoch.
        stream_index: uint32 (n), each message's index into `stream_names`.
        stream_names: (topic, queue id) pairs; some may have no message here. `topics` and `queue_ids` have one value
            per message.
        extras: an `Extras` per message (delivery time in ms, key, properties as JSON bytes), or None if no message has
            any of these. `columns` gives them without an object a message.
    """

    __slots__ = (
        "buffer", "extras", "lengths", "offsets", "positions", "stream_index", "stream_names", "times_ms",
    )  # fmt: skip

    def __init__(
        self,
        buffer: memoryview,
        positions: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
        times_ms: npt.NDArray[np.int64],
        stream_index: npt.NDArray[np.uint32],
        stream_names: Sequence[tuple[str, int]],
        extras: Sequence[Extras] | None = None,
    ) -> None:
        self.buffer = buffer
        self.positions = positions
        self.lengths = lengths
        self.offsets = offsets
        self.times_ms = times_ms
        self.stream_index = stream_index
        self.stream_names = stream_names
        self.extras = extras

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<MessageBatch of {len(self)} messages, {int(self.lengths.sum())} bytes>"

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """A copy or a pickle has the payloads in a buffer of its own, and nothing else of this one's."""
        kinds = type(self).__mro__
        state = {name: getattr(self, name) for kind in kinds for name in getattr(kind, "__slots__", ())}
        rows = np.arange(len(self))
        state["buffer"] = bytes(gathered(self.buffer, self.positions, self.lengths, rows))
        state["positions"] = self.lengths.cumsum() - self.lengths
        state["stream_names"] = list(self.stream_names)
        state["extras"] = None if self.extras is None else list(self.extras)
        return None, state

    def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
        for name, value in state[1].items():
            setattr(self, name, value)
        self.buffer = memoryview(self.buffer)

    @property
    def topics(self) -> list[str]:
        """The topic of each message (n). Each call makes a new list."""
        names = self.stream_names
        return [names[index][0] for index in self.stream_index.tolist()]

    @property
    def queue_ids(self) -> npt.NDArray[np.int32]:
        """int32 (n), the queue id of each message. Each call makes a new array."""
        names = self.stream_names
        return np.array([names[index][1] for index in self.stream_index.tolist()], np.int32)

    def payload(self, index: int) -> memoryview:
        """The data of message `index`: a view of the buffer, without a copy."""
        begin = int(self.positions[index])
        return self.buffer[begin : begin + int(self.lengths[index])]

    def payloads(self) -> list[memoryview]:
        """The data of each message: views of the buffer, without copies."""
        begins = self.positions.tolist()
        ends = (self.positions + self.lengths).tolist()
        buffer = self.buffer
        return [buffer[begin:end] for begin, end in zip(begins, ends, strict=True)]

    def topic(self, index: int) -> str:
        """The topic of message `index`."""
        return self.stream_names[int(self.stream_index[index])][0]

    def queue_id(self, index: int) -> int:
        """The queue id of message `index`."""
        return self.stream_names[int(self.stream_index[index])][1]

    def to_arrow(self) -> pa.Table:
        """The messages as a `pyarrow.Table`, with columns named as the attributes of `Message`.

        The payloads are the batch's own memory where they lie there back to back, as most batches have them. Topics are
        a dictionary column, properties a map. Raises StoreError without pyarrow, and for undecodable properties.
        """
        return arrow_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """The messages as a `pandas.DataFrame`, with columns named as the attributes of `Message`.

        Raises StoreError without pandas and pyarrow, and for undecodable properties.
        """
        return pandas_frame(self)

    def columns(self) -> MessageColumns:
        """The messages as `append_columns` takes them: `store.append_columns(*batch.columns())` appends them again."""
        return columns_of_batch(
            self.stream_names, self.stream_index, self.positions, self.lengths, self.buffer, self.extras
        )

    def message(self, index: int) -> Message:
        """Message `index` as an object, with its own copy of the data. Raises StoreError for undecodable properties."""
        extra = self.extras[index] if self.extras is not None else None
        return make_message(
            *self.stream_names[int(self.stream_index[index])],
            int(self.offsets[index]), bytes(self.payload(index)), int(self.times_ms[index]), extra,
        )  # fmt: skip

    def messages(self) -> list[Message]:
        """All messages as objects, each with its own copy of the data. Slower than the columns."""
        return [self.message(index) for index in range(len(self))]


def packed_properties(properties: Mapping[str, str] | None) -> bytes | None:
    """Properties as a frame has them."""
    return None if properties is None else json.dumps(dict(properties), separators=(",", ":")).encode()


def plain_messages(
    topic: str, queue_id: int, offsets: Iterable[int], datas: Iterable[bytes], times: Iterable[int]
) -> list[Message]:
    """Messages of a queue without a delivery time, key or properties: no call a message but for the object's."""
    drafts = list(map(_Draft, repeat(topic), repeat(queue_id), offsets, datas, times))
    for draft in drafts:
        draft.__class__ = Message  # type: ignore[assignment]  # see `make_message`
    return drafts  # type: ignore[return-value]  # their class was changed above


def make_message(topic: str, queue_id: int, offset: int, data: bytes, time_ms: int, extra: Extras | None) -> Message:
    """A Message from its parts. Raises StoreError if its properties cannot be decoded."""
    draft = _Draft(topic, queue_id, offset, data, time_ms)
    if extra is not None:
        draft.deliver_at_ms, draft.key = extra.due_ms, extra.key
        try:
            draft.properties = _PROPERTIES.decode(extra.properties.decode()) if extra.properties is not None else None
        except (ValueError, RecursionError) as error:
            what = f"the properties of {topic!r}/{queue_id} at offset {offset} cannot be decoded"
            raise StoreError(what) from error
    draft.__class__ = Message  # type: ignore[assignment]  # the slots are the same ones: see `_Draft`
    return draft  # type: ignore[return-value]  # a Message by the line above, which mypy cannot follow
