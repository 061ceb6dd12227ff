"""What a user may set of a RocketMQ endpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

MINUTE_MS = 60_000
RETRY_DELAYS_MS = (
    1000, 5000, 10_000, 30_000, *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQOptions:
    """The settings of a RocketMQ endpoint; times are in milliseconds.

    Attributes:
        queues: of a topic that the endpoint makes.
        create_topics: a topic is made when a client asks for its route, or sends to it. False: the client hears
            TOPIC_NOT_FOUND, as from a broker without automatic creation. Topics of dead letters are made all the same.
        fifo_groups: the consumer groups that get the messages of a message group in order, one batch after the other.
        max_attempts: how often a message is given to a group before it goes to the dead letters, `%DLQ%<group>`.
        retry_delays_ms: how long a message rests that a push consumer has failed to consume: after the first attempt,
            the second one, ..; the last one repeats. Clients of Python know whole seconds only.
        receive_batch_size: the most messages that a push consumer asks for at once.
        long_polling_ms: how long a push consumer's call waits for messages, in whole seconds. A push consumer
            may need so long to end; it gets a message at once whatever this is.
        deduplicate: a message whose id its topic has seen within its window is answered and not stored again. So what
            a client sends a second time, because it has not heard the first answer, is there once.
        max_body_bytes: of a message.
        check_first_ms, check_interval_ms: when a producer is asked first about a transaction that it has not ended, and
            when again.
        max_checks: how often; then the half message goes to the topic `TRANS_CHECK_MAX_TIME_TOPIC`.
    """

    queues: int = 4
    create_topics: bool = True
    fifo_groups: Collection[str] = ()
    max_attempts: int = 17
    retry_delays_ms: Sequence[int] = RETRY_DELAYS_MS
    receive_batch_size: int = 32
    long_polling_ms: int = 5000
    deduplicate: bool = True
    max_body_bytes: int = 4 << 20
    check_first_ms: int = 6000
    check_interval_ms: int = 30_000
    max_checks: int = 15

    def __post_init__(self) -> None:
        """Raises ValueError for a value that is not possible."""
        if isinstance(self.fifo_groups, str):
            raise ValueError("fifo_groups is a collection of names, not one name")
        for name in ("queues", "max_attempts", "receive_batch_size", "max_body_bytes", "check_first_ms",
                     "check_interval_ms", "max_checks"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}")
        if self.long_polling_ms < 1000:
            raise ValueError("long_polling_ms is at least 1000: some clients know whole seconds only")
        if not self.retry_delays_ms or min(self.retry_delays_ms) < 0:
            raise ValueError("retry_delays_ms is at least one delay, of 0 or more")
