"""What a dashboard may change: where a group is in a topic, and whether it is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ...subscribed import subscription_of
from ...wire import CLASSES, Code
from ..naming import check_not_own
from ..statuses import OK, Refused
from ..times import ms_of

if TYPE_CHECKING:
    from stratalog import MessageStore, SubscriptionInfo

    from ..groups import Groups

_RESET: Final = CLASSES["ResetGroupOffsetResponse"]
_DELETED: Final = CLASSES["DeleteSubscriptionResponse"]


class Resetting:
    """Changes groups, durably."""

    def __init__(self, store: MessageStore, groups: Groups) -> None:
        self._store = store
        self._groups = groups

    async def reset_group_offset(self, request: Any, context: Any) -> Any:
        """All messages of this time and later come, also those that were acknowledged; earlier ones do not."""
        topic, name = request.topic.name, request.group.name
        time_ms = ms_of(request.reset_timestamp)
        if time_ms < 0:
            raise Refused(Code.BAD_REQUEST, "the time is 0 or later")
        info = await asyncio.to_thread(self._info, topic, name)
        group = self._groups.open_group(topic, name)
        if group is not None:
            await group.sub.seek_async(time_ms)
        else:
            await asyncio.to_thread(self._seek, info, time_ms)
        return _RESET(status=OK)

    async def delete_subscription(self, request: Any, context: Any) -> Any:
        """The group forgets the topic; a consumer that receives again begins anew."""
        topic, name = request.topic.name, request.group.name
        await asyncio.to_thread(self._info, topic, name)
        await asyncio.to_thread(self._store.delete_subscription, topic, name)
        return _DELETED(status=OK)

    def _info(self, topic: str, name: str) -> SubscriptionInfo:
        check_not_own(topic)
        info = subscription_of(self._store, topic, name) if topic and name else None
        if info is None:
            raise Refused(Code.CONSUMER_GROUP_NOT_FOUND, f"there is no consumer group {name!r} of the topic {topic!r}")
        return info

    def _seek(self, info: SubscriptionInfo, time_ms: int) -> None:
        settings = info.settings
        with self._store.subscribe(
            info.topic, info.name, mode=settings.mode, order_by=settings.order_by, filter=settings.filter
        ) as sub:
            sub.seek(time_ms)
