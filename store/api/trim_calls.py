"""The calls that remove messages, as a user sees them: names, arguments and promises. `TrimChanges` does the work."""

from __future__ import annotations

from .trimming import TrimChanges


class TrimCalls:
    """Passes each call on to the store's part that trims. It has no state of its own."""

    _trimming: TrimChanges

    def trim(self, topic: str, queue_id: int, before_offset: int) -> int:
        """Remove the messages of a queue that lie before an offset; return the queue's first offset then.

        It returns when this is as durable as an append is. A read that begins later gives none of these messages;
        one that is under way may. Offsets go on where they were. What retention has removed, and lives on as a copy of
        a delayed message or was read ahead by a subscription, is removed as well. So
        `trim(topic, queue_id, queue_bounds(topic, queue_id)[1])` removes all of a queue. For a queue that was never
        used the result is 0.

        The caches use the messages' memory again. Their space on the disk is freed with the segment that they are in:
        once all of it is trimmed, and all segments before it. The newest sealed segment of a lane stays.

        Args:
            before_offset: the first offset that stays; at most the queue's next offset, which removes all messages.

        Raises:
            OffsetOutOfRange: `before_offset` is after the queue's next offset. Nothing was removed.
            InvalidTopic, InvalidMessage: the topic, the queue id or the offset is not valid.
            PublishBufferFull, StoreFull, StoreClosed, StoreUnreadable: nothing was removed.
            StorePoisoned: a write or force failed; the messages may or may not be there at the next opening.
        """
        return self._trimming.trim(topic, queue_id, before_offset)

    def delete_topic(self, topic: str) -> bool:
        """Remove all messages of a topic, and its settings; return False if there is no such topic.

        Each queue of the topic is trimmed to its next offset, see `trim`. `topics()` and `queues()` leave the topic out
        until one of its queues has a new message, whose offset is the next one, or it is configured again. Once
        retention has removed all messages of the topic, and nothing else is known of it, the next opening forgets it,
        and its queues begin with offset 0. Messages that become durable during the call may stay. If the process dies
        during the call, the messages of some queues may be gone, and those of others not. An append without a queue id
        still chooses among the queues that the topic had.

        Raises:
            InvalidTopic: the topic is not valid.
            PublishBufferFull, StoreFull, StorePoisoned, StoreClosed: some queues may be removed; call it again.
            StoreUnreadable: the system refused a read. Nothing was removed.
        """
        return self._trimming.delete_topic(topic)
