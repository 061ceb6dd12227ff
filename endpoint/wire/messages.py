"""The classes of RocketMQ 5's messages."""

from typing import Any, Final

from .admin_fields import ADMIN_MESSAGES
from .fields import MESSAGES, PACKAGE
from .pool import message_classes

SERVICE: Final = f"{PACKAGE}.MessagingService"

CLASSES: Final[dict[str, Any]] = message_classes(PACKAGE, {**MESSAGES, **ADMIN_MESSAGES})
