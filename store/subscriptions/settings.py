"""Arguments of users, checked: the settings of a subscription, positions, and the arguments of its calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import EllipsisType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..errors import InvalidMessage, InvalidTopic, OffsetOutOfRange, StaleReceipt, shown
from ..filters.given import PlainFilter, check_filter
from ..format.arrays import Int64s
from ..log.streams import check_name
from .backoff import check_backoff, rests_ms
from .delivery import Delivery
from .parts import Parts

Mode = Literal["shared", "ordered"]
OrderBy = Literal["queue", "key"]
Start: TypeAlias = "Literal['earliest', 'latest'] | int | Mapping[int, int]"
MOST_MS = 1 << 50
_NEVER_CHANGED = ("mode", "order_by")
_ALWAYS_GIVEN = (*_NEVER_CHANGED, "filter")
SHOWN_RECEIPTS = 3
FEW = 64  # up to so many messages are given out as objects at once, and not as columns first
MOST_MESSAGES = 1 << 20
LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX) * 500
LONGEST_MS = 1 << 40
MOST_REASON_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one subscription.

    Attributes:
        mode: "shared", or "ordered": the next batch of a line goes out only when the one before was acknowledged.
        order_by: what a line is then: each "queue", or each "key" of a queue.
        filter: a condition in SQL, as it was given; or by property name the wanted values, sorted; None takes all
            messages.
        max_attempts: how often a message is given out before it goes to `dead_letter_topic`; None: without end.
        precision_ms: how much later than its time a delayed message may come to a waiting consumer, for fewer wake-ups.
            It never comes early.
        backoff_ms: how long a message rests after its first failure, its second one, ..; the last delay repeats. None:
            it comes again at once.
    """

    mode: Mode = "shared"
    order_by: OrderBy = "queue"
    filter: PlainFilter | None = None
    max_attempts: int | None = None
    dead_letter_topic: str | None = None
    precision_ms: int = 0
    backoff_ms: tuple[int, ...] | None = None

    def pack(self) -> bytes:
        """The settings as JSON. A back-off is there only if there is one: others are as earlier versions wrote them."""
        given = asdict(self)
        if self.backoff_ms is None:
            del given["backoff_ms"]
        return json.dumps(given, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Settings:
        """The settings of a JSON text. Names that a later version has added are ignored."""
        given: dict[str, Any] = json.loads(data)
        known = {name: given[name] for name in cls.__slots__ if name in given}
        wanted = known.get("filter")
        if isinstance(wanted, dict):
            known["filter"] = {name: tuple(values) for name, values in wanted.items()}
        if known.get("backoff_ms") is not None:
            known["backoff_ms"] = tuple(known["backoff_ms"])
        return cls(**known)

    def rests_ms(self, attempts: Int64s) -> Int64s | None:
        """(n,) how long messages rest that were given out so often, by the back-off; None if there is none."""
        return None if self.backoff_ms is None else rests_ms(self.backoff_ms, self.max_attempts, attempts)

    def changed(
        self, filter_: object | EllipsisType, max_attempts: object, dead_letter_topic: object, precision_ms: object,
        backoff_ms: object,
    ) -> Settings:  # fmt: skip
        """A copy with other values for some settings; None, of the filter `...`, leaves one as it is.

        Raises InvalidMessage, InvalidTopic.
        """
        wanted = self.filter if filter_ is ... else check_filter(filter_)
        attempts = self.max_attempts if max_attempts is None else max_attempts
        dead_letters = self.dead_letter_topic if dead_letter_topic is None else dead_letter_topic
        most, topic = _dead_letters(attempts, dead_letters)
        precision = self.precision_ms if precision_ms is None else check_number("precision_ms", precision_ms)
        backoff = self.backoff_ms if backoff_ms is None else check_backoff(backoff_ms)
        known = replace(self, filter=wanted, precision_ms=precision, backoff_ms=backoff)
        return replace(known, max_attempts=most, dead_letter_topic=topic)

    def check_same(self, other: Settings, given: Collection[str], name: str) -> None:
        """Raise InvalidMessage if a setting that another `subscribe` has `given` differs in `other`."""
        for field in given:
            mine, theirs = getattr(self, field), getattr(other, field)
            if mine != theirs:
                how = "delete the subscription first" if field in _NEVER_CHANGED else "call `change` of an open one"
                raise InvalidMessage(
                    f"the subscription {name!r} has {field}={shown(mine)}, not {shown(theirs)}; give it the same, or "
                    f"{how}"
                )


def check_subscription(name: object) -> str:
    """The name of a subscription; the rules of topics hold for it. Raises InvalidMessage."""
    try:
        return check_name(name, 0)[0]
    except InvalidTopic as error:
        raise InvalidMessage(f"a subscription is named as a topic is: {error}") from None


def check_number(name: str, value: object, least: int = 0, most: int = MOST_MS) -> int:
    """An int in a range; numpy's ints are taken, too. Raises InvalidMessage."""
    if isinstance(value, np.integer):
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise InvalidMessage(f"{name} is an int from {least} to {most}, not {shown(value)}")
    return value


def check_reason(reason: object) -> str | None:
    """The reason of a nack. Raises InvalidMessage."""
    if reason is None:
        return None
    try:
        size_bytes = len(reason.encode()) if isinstance(reason, str) else -1
    except UnicodeEncodeError:
        size_bytes = -1
    if not isinstance(reason, str) or not 0 <= size_bytes <= MOST_REASON_BYTES:
        raise InvalidMessage(f"reason is a text of up to {MOST_REASON_BYTES} bytes of UTF-8, not {shown(reason)}")
    return str(reason)


def check_settings(
    mode: object, order_by: object, filter_: object, max_attempts: object, dead_letter_topic: object,
    precision_ms: object, backoff_ms: object,
) -> tuple[Settings, list[str]]:  # fmt: skip
    """The settings of `subscribe`'s arguments, and the names of the given ones. Raises InvalidMessage, InvalidTopic."""
    if not isinstance(mode, str) or mode not in ("shared", "ordered"):
        raise InvalidMessage(f'mode is "shared" or "ordered", not {shown(mode)}')
    if not isinstance(order_by, str) or order_by not in ("queue", "key"):
        raise InvalidMessage(f'order_by is "queue" or "key", not {shown(order_by)}')
    most, dead_letters = _dead_letters(max_attempts, dead_letter_topic)
    precision = 0 if precision_ms is None else check_number("precision_ms", precision_ms)
    plain_mode: Mode = "ordered" if mode == "ordered" else "shared"
    plain_order: OrderBy = "key" if order_by == "key" else "queue"
    given = list(_ALWAYS_GIVEN)
    if most is not None:
        given += ["max_attempts", "dead_letter_topic"]
    if precision_ms is not None:
        given.append("precision_ms")
    backoff = None if backoff_ms is None else check_backoff(backoff_ms)
    if backoff_ms is not None:
        given.append("backoff_ms")
    return Settings(plain_mode, plain_order, check_filter(filter_), most, dead_letters, precision, backoff), given


def _dead_letters(max_attempts: object, topic: object) -> tuple[int, str] | tuple[None, None]:
    if (max_attempts is None) != (topic is None):
        raise InvalidMessage("max_attempts and dead_letter_topic belong together: give both, or none of them")
    if max_attempts is None:
        return None, None
    return check_number("max_attempts", max_attempts, 1), check_name(topic, 0)[0]


def check_dead_letters(dead_letter_topic: str | None, topic: str) -> None:
    """Raise InvalidMessage if a topic would be the dead letters' topic of its own subscription."""
    if dead_letter_topic == topic:
        raise InvalidMessage(
            f"dead_letter_topic is {shown(topic)}, the subscription's own topic, which would give them out again "
            f"without end; name another topic"
        )


class DeadLetterChains:
    """The topics of a store, linked by the dead letters of their subscriptions. Any number of threads may use it.

    Invariant: a chain of links that was made here never returns to its beginning.
    """

    def __init__(self, names_of: Callable[[str], list[str]], dead_letters_of: Callable[[str, str], str | None]) -> None:
        """`names_of` gives a topic's subscriptions; `dead_letters_of(topic, name)` the topic of one's dead letters."""
        self._names_of = names_of
        self._dead_letters_of = dead_letters_of
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, topic: str, dead_letter_topic: str | None) -> Iterator[Callable[[], None]]:
        """Hold the links while a subscription of a topic is made or changed. Yields the check to call.

        The check raises InvalidMessage if dead letters would come back to the topic.
        """
        with nullcontext() if dead_letter_topic is None else self._lock:
            yield partial(self._check, topic, dead_letter_topic)

    def _check(self, topic: str, dead_letter_topic: str | None) -> None:
        if dead_letter_topic is None:
            return
        left, seen = [dead_letter_topic], {dead_letter_topic}
        while left:
            at = left.pop()
            for name in self._names_of(at):
                leads_to = self._dead_letters_of(at, name)
                if leads_to == topic:
                    raise InvalidMessage(
                        f"dead letters of {topic!r} would come back to it without end: they lead to {at!r}, whose "
                        f"subscription {name!r} sends its own to {topic!r}; name another dead_letter_topic"
                    )
                if leads_to is not None and leads_to not in seen:
                    seen.add(leads_to)
                    left.append(leads_to)


def check_start(start: object) -> Start:
    """The checked `position` of `seek`, or `start` of `subscribe`. Raises InvalidMessage."""
    if isinstance(start, str) and start in ("earliest", "latest"):
        return "earliest" if start == "earliest" else "latest"
    if isinstance(start, Mapping):
        found = {}
        for queue_id, offset in start.items():
            try:
                queue = check_name("queue", queue_id)[1]
            except InvalidTopic as error:
                raise InvalidMessage(str(error)) from None
            found[queue] = check_number("an offset", offset, 0, (1 << 62) - 1)
        return found
    if isinstance(start, int | np.integer) and not isinstance(start, bool):
        return check_number("a time in ms", start, 0, (1 << 62) - 1)
    raise InvalidMessage(
        f'a position is "earliest", "latest", a time in ms since the epoch, or a dict of offsets by queue id, not '
        f"{shown(start)}"
    )


class ReceiveArguments(NamedTuple):
    """The arguments of a receive, checked; `queue_id` None is all queues."""

    messages: int
    size_bytes: int
    visibility_ms: int
    wait_ms: int
    queue_id: int | None = None


def is_few(max_messages: object, wait_ms: object, visibility_ms: object) -> bool:
    """Whether the arguments of a receive are good, and it asks for only a few messages."""
    return (
        type(max_messages) is type(wait_ms) is type(visibility_ms) is int
        and 0 < max_messages <= FEW
        and wait_ms >= 0 < visibility_ms <= LONGEST_MS
    )


def wanted_of(
    max_messages: object, wait_ms: object, visibility_ms: object, max_bytes: object, queue_id: object = None
) -> ReceiveArguments:
    """The arguments of a receive, checked. Raises InvalidMessage, InvalidTopic."""
    return ReceiveArguments(
        min(check_number("max_messages", max_messages, 1, 1 << 62), MOST_MESSAGES),
        check_number("max_bytes", max_bytes, 1, 1 << 62),
        check_number("visibility_timeout_ms", visibility_ms, 1, LONGEST_MS),
        min(check_number("wait_ms", wait_ms, 0, 1 << 62), LONGEST_WAIT_MS),
        None if queue_id is None else check_name("queue", queue_id)[1],
    )


def receipt_of(delivery: object) -> int:
    """The receipt of a delivery, or the receipt itself. Raises InvalidMessage."""
    receipt = delivery.receipt if isinstance(delivery, Delivery) else delivery
    if type(receipt) is not int and isinstance(receipt, np.integer):
        receipt = int(receipt)
    if type(receipt) is not int or not 0 <= receipt < 1 << 63:
        raise InvalidMessage(f"a delivery or its receipt is wanted, not {shown(delivery)}")
    return receipt


def receipts_of(given: object) -> Int64s:
    """The receipts (n,) of an array or of deliveries. Raises InvalidMessage."""
    if isinstance(given, list | tuple):
        given = [one.receipt if isinstance(one, Delivery) else one for one in given]
        if not given:
            return np.empty(0, np.int64)
    try:
        found = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        found = np.empty((0, 0))
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer) or found.dtype == np.uint64:
        raise InvalidMessage(f"receipts are integers (n,) or a list of deliveries, not {shown(given)}")
    return found.astype(np.int64, copy=False)


def stale(name: str, receipts: Sequence[int]) -> StaleReceipt:
    """The error for stale receipts of a subscription."""
    shown_ones = ", ".join(map(str, receipts[:SHOWN_RECEIPTS])) + (", .." if len(receipts) > SHOWN_RECEIPTS else "")
    return StaleReceipt(
        f"{len(receipts)} receipt(s) of the subscription {name!r} are stale ({shown_ones}): the message was "
        f"acknowledged or given back, or its visibility time-out passed and it was given to another, or removed by a "
        f"trim or by retention; nothing was done. Leave these out, or take a longer visibility_timeout_ms",
        tuple(receipts),
    )


def offsets_of(parts: Parts, topic: str, start: Start) -> dict[int, int]:
    """The first offset of each queue that is to be given out. A later queue begins at its first message.

    Raises OffsetOutOfRange for an offset beyond a queue's next one.
    """
    if isinstance(start, Mapping):
        for queue_id, offset in start.items():
            first, next_offset = parts.reads.queue_bounds(topic, queue_id)
            if offset > next_offset:
                raise OffsetOutOfRange(topic, queue_id, offset, first, next_offset)
        return dict(start)
    queues = parts.queues(topic)
    if start == "earliest":
        return dict.fromkeys(queues, 0)
    if start == "latest":
        return {queue_id: parts.reads.queue_bounds(topic, queue_id)[1] for queue_id in queues}
    found = {queue_id: parts.reads.offset_at(topic, queue_id, int(start)) for queue_id in queues}
    # Where retention has removed all that is older, nobody knows which of the copies are: all of them come.
    return {queue_id: at if at > parts.reads.queue_bounds(topic, queue_id)[0] else 0 for queue_id, at in found.items()}
