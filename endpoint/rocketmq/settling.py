"""AckMessage and ChangeInvisibleDuration: what a consumer does with a message that it has."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stratalog import InvalidMessage, StaleReceipt, SubscriptionClosed

from ..wire import CLASSES, Code
from .checking import check_count
from .groups import Receipt
from .statuses import OK, Refused, Status, status_of, status_of_all
from .times import LONGEST_MS, ms_of
from .together import Together

if TYPE_CHECKING:
    from .clients import Client, Clients
    from .groups import Group, Groups

_ACKED: Final = CLASSES["AckMessageResponse"]
_ENTRY: Final = CLASSES["AckMessageResultEntry"]
_CHANGED: Final = CLASSES["ChangeInvisibleDurationResponse"]


class Settling:
    """Acknowledges messages, keeps them longer, and gives them back."""

    def __init__(self, groups: Groups, clients: Clients) -> None:
        self._groups = groups
        self._clients = clients
        self._together = Together()

    async def ack_message(self, request: Any, context: Any) -> Any:
        """Acknowledge messages; a status for each. Durable when it is answered."""
        client = self._clients.of(context, makes=False)
        check_count(request.entries, "receipt handles")
        group = self._groups.known(request.topic.name, request.group.name)
        entries = request.entries
        if not entries:
            raise Refused(Code.BAD_REQUEST, "no receipt handle to acknowledge")
        if len(entries) == 1:
            done = [await self._ack(client, group, entries[0])]
        else:
            done = await asyncio.gather(*(self._ack(client, group, entry) for entry in entries))
        return _ACKED(status=status_of_all([entry.status for entry in done]), entries=done)

    async def _ack(self, client: Client, group: Group, entry: Any) -> Any:
        status = OK
        try:
            receipt = Receipt.unpack(entry.receipt_handle).number
            await self._acked(client, group, receipt)
        except Exception as error:
            status = _status_of(error)
        return _ENTRY(status=status, message_id=entry.message_id, receipt_handle=entry.receipt_handle)

    async def _acked(self, client: Client, group: Group, receipt: int) -> None:
        try:
            await self._together.call(partial(group.sub.ack_async, receipt))
        except StaleReceipt:
            client.held.pop((group, receipt), None)  # another one has it
            raise
        client.held.pop((group, receipt), None)

    async def change_invisible_duration(self, request: Any, context: Any) -> Any:
        """The message comes again after this time from now on; with 0 at once. Its receipt stays as it is."""
        client = self._clients.of(context, makes=False)
        handle = request.receipt_handle
        try:
            group = self._groups.known(request.topic.name, request.group.name)
            receipt = Receipt.unpack(handle).number
            await _change(group, receipt, ms_of(request.invisible_duration))
            client.held.pop((group, receipt), None)  # a push consumer that changes it has failed, and has it no more
        except Exception as error:
            return _CHANGED(status=_status_of(error), receipt_handle=handle)
        return _CHANGED(status=OK, receipt_handle=handle)


async def _change(group: Group, receipt: int, ms: int) -> None:
    if not 0 <= ms <= LONGEST_MS:
        raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisible time is 0 to {LONGEST_MS} ms")
    if ms:
        await group.sub.extend_async(receipt, ms)
    else:
        await group.sub.nack_async(receipt)


def _status_of(error: Exception) -> Any:
    if isinstance(error, StaleReceipt | InvalidMessage | SubscriptionClosed):  # another code is tried again for ever
        return Status(code=Code.INVALID_RECEIPT_HANDLE, message=str(error))
    return status_of(error)
