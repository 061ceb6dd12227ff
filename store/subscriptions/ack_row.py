"""One message on its way from the table of messages in flight to the cursor."""

from __future__ import annotations

from typing import NamedTuple


class AckRow(NamedTuple):
    """A message that is being acknowledged.

    Attributes:
        life, era: of the subscription, and of the queue, when it was acknowledged.
    """

    life: int
    era: int
    receipt: int
    queue_id: int
    offset: int
