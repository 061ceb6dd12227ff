"""RecallMessage: a delayed message that is not to come after all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..wire import CLASSES, Code
from .sending import Recallable
from .statuses import OK, Refused

if TYPE_CHECKING:
    from stratalog import MessageStore

_ANSWER: Final = CLASSES["RecallMessageResponse"]


class Recalling:
    """Cancels delayed messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def recall_message(self, request: Any, context: Any) -> Any:
        """Cancel the message of a recall handle. It is refused if the message has come, or was recalled before.

        Not with MESSAGE_NOT_FOUND, which Python's client takes for success.
        """
        found = Recallable.unpack(request.recall_handle)
        if found.topic != request.topic.name:
            raise Refused(Code.BAD_REQUEST, "recall handle is of another topic")
        if not await self._store.cancel_delayed_async(found.topic, found.queue_id, found.offset):
            raise Refused(Code.BAD_REQUEST, "recall failed: the message has come, or was recalled")
        return _ANSWER(status=OK, message_id=found.message_id)
