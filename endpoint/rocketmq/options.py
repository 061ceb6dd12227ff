"""What a user may set of a RocketMQ endpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .naming import check_group
from .statuses import Refused

MINUTE_MS = 60_000
RETRY_DELAYS_MS = (
    1000, 5000, 10_000, 30_000, *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)  # fmt: skip

MOST_DELAYS = 1000
MOST_MS = 1 << 40  # 34 years
MOST_INT32 = (1 << 31) - 1  # the protocol's numbers
RANGES = {
    "queues": (1, 1 << 16), "max_attempts": (1, MOST_INT32), "receive_batch_size": (1, 1024),
    "long_polling_ms": (1000, 60 * MINUTE_MS), "max_body_bytes": (1, MOST_INT32), "check_first_ms": (1, MOST_MS),
    "check_interval_ms": (1, MOST_MS), "max_checks": (1, MOST_INT32),
}  # fmt: skip


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
        for name, (least, most) in RANGES.items():
            _check(name, getattr(self, name), least, most)
        for name in ("create_topics", "deduplicate"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} is True or False, not {getattr(self, name)!r}")
        delays_ms = self.retry_delays_ms
        if not isinstance(delays_ms, Sequence) or isinstance(delays_ms, str) or not 1 <= len(delays_ms) <= MOST_DELAYS:
            raise ValueError(f"retry_delays_ms is a list of 1 to {MOST_DELAYS} delays, not {delays_ms!r}")
        for delay_ms in delays_ms:
            _check("each of retry_delays_ms", delay_ms, 0, MOST_MS)
        if isinstance(self.fifo_groups, str) or not isinstance(self.fifo_groups, Collection):
            raise ValueError(f"fifo_groups is a collection of names, not {self.fifo_groups!r}")
        for group in self.fifo_groups:
            _check_group(group)


def _check(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least:,} to {most:,}, not {value!r}")


def _check_group(name: object) -> None:
    if not isinstance(name, str):
        raise ValueError(f"fifo_groups has names, and {name!r} is none")
    try:
        check_group(name)
    except Refused as refused:
        raise ValueError(f"fifo_groups has {name!r}: {refused}") from None
