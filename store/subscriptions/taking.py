"""What a thread takes on behalf of a coroutine."""

from __future__ import annotations

from collections.abc import Callable

from .delivery import DeliveryBatch
from .state import State


class Taking:
    """What a thread takes for a coroutine, which may be gone before it has it: then the messages come again."""

    def __init__(self, state: State) -> None:
        self.batch: DeliveryBatch | None = None
        self._state = state
        self._is_over = False

    def take(self, take: Callable[[], DeliveryBatch | None]) -> None:
        """In the thread."""
        if not self._is_over:
            self.batch = take()
            if self._is_over:
                self.give_up()

    def give_up(self) -> None:
        """The coroutine ends. Each side looks after it has said so: one of them finds the batch, or both do."""
        self._is_over = True
        if self.batch is not None:
            self._state.take_back(self.batch.receipts)
