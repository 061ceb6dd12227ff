"""AdminSendMessage: a dashboard's own message, such as one to see whether consumers work."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from ...wire import CLASSES, Code
from ...wire.codes import MessageType
from ..checking import type_by_fields
from ..statuses import Refused

if TYPE_CHECKING:
    from ..sending import Sending

_ANSWER: Final = CLASSES["AdminSendMessageResponse"]


class Posting:
    """Sends what a dashboard gives, by the rules for what producers send."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending

    async def admin_send_message(self, request: Any, context: Any) -> Any:
        """Store a message; its id, which is made here if none is given. It is durable when it is answered.

        Raises Refused for a half message: nobody would end its transaction.
        """
        asked = CLASSES["SendMessageRequest"]()
        message = asked.messages.add(topic=request.topic, body=request.body)
        message.user_properties.update(request.user_properties)
        system = message.system_properties
        system.CopyFrom(request.system_properties)
        if request.HasField("tag"):
            system.tag = request.tag
        if request.HasField("key"):
            system.keys.append(request.key)
        system.message_id = system.message_id or f"01{secrets.token_hex(16).upper()}"
        system.message_type = system.message_type or type_by_fields(system)
        if system.message_type == MessageType.TRANSACTION:
            raise Refused(Code.UNSUPPORTED, "a message of a transaction comes from a producer")
        answer = await self._sending.send_message(asked, context)
        return _ANSWER(status=answer.status, message_id=system.message_id)
