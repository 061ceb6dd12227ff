"""What a call is about, and which calls a test means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from ..server.calls import Call
from .methods import methods_of
from .named import group_named, topics_named


class Selected(TypedDict, total=False):
    """Which calls; what is left out does not matter.

    Attributes:
        method: as `SendMessage`; of `stratalog.connect` the method of the object, as `append` (one with `submit` and
            `append_async`: they travel alike), or the call's name in the record, as `submit`.
        topic: a topic that the request names.
        group: the consumer group that the request names.
        client_id: the id that the client gives itself. `calls` shows those of clients that have called.
        where: a function of the call, for everything else: `where=lambda call: len(call.request.messages) > 1`. A fault
            gives it a `Call`, the record of calls a `ClientCall`.
    """

    method: str
    topic: str
    group: str
    client_id: str
    where: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Selection:
    """Fits calls, by the fields of `Selected`. Raises ValueError for a field that can fit none."""

    method: str | None = None
    topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    where: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        if self.method is not None:
            methods_of(self.method)
        for name in ("topic", "group", "client_id"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} is a str, not {value!r}")
        if self.where is not None and not callable(self.where):
            raise ValueError(f"where is a function of a call, not {self.where!r}")

    def fits(self, call: Call) -> bool:
        """Whether a call is meant."""
        return (
            (self.method is None or call.method in methods_of(self.method))
            and (self.client_id is None or self.client_id == call.client_id)
            and (self.topic is None or self.topic in topics_of(call.request))
            and (self.group is None or self.group == group_of(call.request))
            and (self.where is None or self.where(call))
        )


def topics_of(request: Any) -> tuple[str, ...]:
    """The topics that a request names, each once. A client's stream of commands names none."""
    if isinstance(request, dict):  # of `stratalog.connect`
        return topics_named(request)
    if hasattr(request, "messages"):
        return tuple(dict.fromkeys(message.topic.name for message in request.messages))
    queue = getattr(request, "message_queue", None)
    name = getattr(getattr(request if queue is None else queue, "topic", None), "name", "")
    return (name,) if name else ()


def group_of(request: Any) -> str:
    """The consumer group that a request names, "" for none; of `stratalog.connect` the subscription."""
    if isinstance(request, dict):
        return group_named(request)
    name: str = getattr(getattr(request, "group", None), "name", "")
    return name
