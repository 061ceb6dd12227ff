"""What is certain of the dead letters. Each is noted once, before retention may take it with its segment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stratalog.store import MessageStore

DEAD: Final = "dead"  # their topic


@dataclass
class DeadLetters:
    """Those of a run's topic.

    Attributes:
        noted: by queue, the offset up to which its dead letters are noted: later ones are new.
    """

    noted: dict[int, int] = field(default_factory=dict)

    def new(self, store: MessageStore) -> set[bytes]:
        """The data of those that were not noted yet."""
        found: set[bytes] = set()
        for queue_id in store.queues(DEAD):
            first, end = store.queue_bounds(DEAD, queue_id)
            begin = max(first, self.noted.get(queue_id, 0))
            if begin < end:
                messages = store.read(DEAD, queue_id, begin, max_messages=1 << 16, max_bytes=1 << 30)
                found |= {message.data for message in messages}
        return found

    def note(self, store: MessageStore) -> set[bytes]:
        """`new`, which are noted from now on."""
        found = self.new(store)
        self.noted = {queue_id: store.queue_bounds(DEAD, queue_id)[1] for queue_id in store.queues(DEAD)}
        return found
