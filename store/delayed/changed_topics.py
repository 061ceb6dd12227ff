"""The topics of which less is wanted than before: `work_queues` looks at their segments."""

from __future__ import annotations


class ChangedTopics:
    """Topics whose messages were acknowledged or trimmed, or whose copies were forgotten. Any number of threads.

    Attributes:
        is_followed: some topic is a work queue. Only then anything is noted.
    """

    def __init__(self) -> None:
        self.is_followed = False
        self._topics: set[str] = set()

    def note(self, topic: str) -> None:
        """Less may be wanted of a topic, which may be a hidden one."""
        if self.is_followed:
            self._topics.add(topic)

    def take(self) -> set[str]:
        """Take out the topics that were noted. One that is noted meanwhile is taken now, or the next time."""
        found = set[str]()
        while self._topics:
            found.add(self._topics.pop())
        return found
