"""A transaction over a connection: it remembers here, and its commit goes to the server as one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from stratalog import Delivery, InvalidMessage, Payload

from ..messages import Given, given_out
from ..values import to_json
from .appending import Queues, offsets_of, plain, rows_of
from .connection import NOBODY, Asked
from .link import Link
from .subscription import RemoteSubscription
from .waiting import Send, wait_for, wait_in_loop

Int64s = npt.NDArray[np.int64]


class RemoteTransaction:
    """Messages to append and to acknowledge, all of them at once or none: see `stratalog.Transaction`.

    Its calls only remember; they check no more than that their arguments can be sent. The commit sends all of it in one
    call, and raises what the store refuses: then nothing is stored. After ConnectionLost all of it is stored, or none.
    One thread or coroutine uses it at a time.
    """

    def __init__(self, link: Link) -> None:
        """Use `RemoteStore.transaction`."""
        link.check()
        self._link = link
        self._given: list[Given] = []
        self._deliveries: list[tuple[str, str, int]] = []
        self._receipts: list[tuple[RemoteSubscription, Any]] = []
        self._ended = False
        self._outcome = "is not committed yet"
        self._offsets: Int64s | None = None

    def append(
        self, topic: str, queue_id: int | None = None, data: Payload | None = None, *,
        deliver_at_ms: int | None = None, key: bytes | None = None, properties: Mapping[str, str] | None = None,
        queues: Queues | None = None, message_id: str | None = None,
    ) -> None:  # fmt: skip
        """Append a message at the commit; its queue is chosen then. Args: as for `MessageStore.append`.

        Raises: InvalidMessage: an argument is of a wrong type, or it has ended; StoreClosed.
        """
        self._check()
        given = plain(topic, queue_id, data, deliver_at_ms, key, properties, queues, message_id)
        if given is None:
            raise InvalidMessage("an argument has not the type that `append` takes")
        self._given.append(given)

    def append_batch(
        self, messages: Iterable[tuple[str, int, Payload]], *, message_ids: Iterable[str | None] | None = None
    ) -> None:
        """Append many messages at the commit. Args: as for `MessageStore.append_batch`."""
        self._check()
        rows = list(messages)
        found = rows_of(rows)
        ids = [None] * len(rows) if message_ids is None else list(message_ids)
        if found is None or len(ids) != len(rows) or not all(one is None or type(one) is str for one in ids):
            raise InvalidMessage("a row is a (topic, queue id, data) tuple, and each has an id or None")
        self._given += [row._replace(message_id=one) for row, one in zip(found, ids, strict=True)]

    def ack(self, delivery: Delivery | int, subscription: RemoteSubscription | None = None) -> None:
        """Acknowledge a message at the commit. Args and errors: as for `Transaction.ack`."""
        self._check()
        if subscription is not None:
            if not isinstance(subscription, RemoteSubscription):
                raise InvalidMessage("subscription is a subscription of this connection")
            self._receipts.append((subscription, delivery))
        elif isinstance(delivery, Delivery):
            self._deliveries.append((delivery.message.topic, delivery.subscription, delivery.receipt))
        else:
            raise InvalidMessage("a receipt alone does not say whose it is: give its subscription, or the delivery")

    def commit(self) -> None:
        """Store all of it; durable and visible when it returns.

        Raises: as for `Transaction.commit`; and ConnectionLost: all of it is stored, or nothing.
        """
        send, asked = self._end()
        self._note(wait_for(send, self._link.answers_lock, asked))

    async def _commit_async(self) -> None:
        send, asked = self._end()
        self._note(await wait_in_loop(send, asked))

    def _note(self, offsets: Int64s) -> None:
        self._offsets = offsets
        self._outcome = "was committed"

    def rollback(self) -> None:
        """Drop all of it. The messages that were to be acknowledged stay the caller's."""
        self._check()
        self._ended = True
        self._outcome = "was rolled back"

    @property
    def offsets(self) -> Int64s:
        """int64 (n), the offset of each message, in the order of the appends. InvalidMessage before the commit."""
        if self._offsets is None:
            raise InvalidMessage(f"the transaction {self._outcome}, so its messages have no offsets")
        return self._offsets

    def _end(self) -> tuple[Send, Asked]:
        """The call that commits, and what sends it: on the connection of its receipts, if it has some."""
        self._check()
        self._ended = True
        self._outcome = "failed, or was interrupted"
        given, buffers = given_out(self._given)
        header = {
            "call": "transaction", "given": given, "deliveries": to_json(self._deliveries),
            "receipts": to_json([(sub.held, receipt) for sub, receipt in self._receipts]),
        }  # fmt: skip
        send = self._receipts[0][0].send if self._receipts else self._link.send
        return send, Asked(header, buffers, NOBODY, offsets_of, True)

    def _check(self) -> None:
        if self._ended:
            self._raise_ended()
        self._link.check()

    def _raise_ended(self) -> NoReturn:
        raise InvalidMessage(f"the transaction {self._outcome}; begin another one")

    def __enter__(self) -> RemoteTransaction:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            if kind is None:
                self.commit()
            else:
                self.rollback()

    async def __aenter__(self) -> RemoteTransaction:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._ended:
            if kind is None:
                await self._commit_async()
            else:
                self.rollback()

    def __repr__(self) -> str:
        acks = len(self._deliveries) + len(self._receipts)
        return f"<RemoteTransaction of {len(self._given)} messages and {acks} acknowledgements, {self._outcome}>"
