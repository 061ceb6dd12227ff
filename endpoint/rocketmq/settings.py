"""The settings that a client gets in answer to its own. Some clients wait for them, and refuse unknown ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..wire import CLASSES, Code
from ..wire.codes import ClientType, Language
from .statuses import Refused
from .times import set_ms

if TYPE_CHECKING:
    from .options import RocketMQOptions

SEND_ATTEMPTS: Final = 3
_SETTINGS: Final = CLASSES["Settings"]


def answer_to(given: Any, options: RocketMQOptions) -> Any:
    """The client's settings with those that the server decides. Raises Refused."""
    answer = _SETTINGS()
    answer.CopyFrom(given)
    answer.ClearField("backoff_policy")
    answer.metric.on = False  # else the client sends measurements somewhere
    kind = given.WhichOneof("pub_sub")
    if kind == "publishing":
        _decide_for_producer(answer, options)
    elif kind == "subscription":
        _decide_for_consumer(answer, options)
    else:
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, "settings of a producer or of a consumer are needed")
    return answer


def _decide_for_producer(answer: Any, options: RocketMQOptions) -> None:
    answer.publishing.max_body_size = options.max_body_bytes
    answer.publishing.validate_message_type = True
    answer.backoff_policy.max_attempts = SEND_ATTEMPTS
    _grow(answer.backoff_policy.exponential_backoff, first_ms=10, most_ms=1000)


def _decide_for_consumer(answer: Any, options: RocketMQOptions) -> None:
    subscription = answer.subscription
    subscription.fifo = subscription.group.name in options.fifo_groups
    if answer.client_type == ClientType.SIMPLE_CONSUMER:
        return
    subscription.receive_batch_size = options.receive_batch_size
    set_ms(subscription.long_polling_timeout, options.long_polling_ms)
    policy, delays_ms = answer.backoff_policy, options.retry_delays_ms
    policy.max_attempts = options.max_attempts
    if answer.user_agent.language == Language.NODE_JS:  # it knows no list of delays, and would retry at once
        _grow(policy.exponential_backoff, first_ms=delays_ms[0], most_ms=max(delays_ms))
        return
    for delay_ms in delays_ms:
        set_ms(policy.customized_backoff.next.add(), delay_ms)


def _grow(backoff: Any, *, first_ms: int, most_ms: int) -> None:
    set_ms(backoff.initial, first_ms)
    set_ms(backoff.max, most_ms)
    backoff.multiplier = 2
