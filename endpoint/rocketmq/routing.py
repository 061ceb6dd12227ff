"""QueryRoute and QueryAssignment: which queues a topic has, and where they are: here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..wire import CLASSES
from ..wire.codes import Permission
from .naming import check_group
from .statuses import OK

if TYPE_CHECKING:
    from .clients import Clients
    from .topics import Topics

BROKER: Final = "stratalog"
ANY_QUEUE: Final = -1
MOST_QUEUES: Final = 64

_ANSWER: Final = CLASSES["QueryRouteResponse"]
_ASSIGNED: Final = CLASSES["QueryAssignmentResponse"]
_QUEUE: Final = CLASSES["MessageQueue"]


class Routing:
    """Answers with the address that the client has dialled: it is the right one behind any mapping of ports."""

    def __init__(self, topics: Topics, clients: Clients) -> None:
        self._topics = topics
        self._clients = clients

    async def query_route(self, request: Any, context: Any) -> Any:
        """The queues of a topic. Each takes the types of messages that the topic takes."""
        client, topic = self._clients.of(context), request.topic.name
        count = await self._topics.queues_of(topic)
        client.routed.add(topic)
        async with client.routes:
            client.routes.notify_all()
        template = _queue(request, 0)
        template.accept_message_types.extend(self._topics.types_of(topic))
        answer = _ANSWER(status=OK)
        for number in range(min(count, MOST_QUEUES)):  # the server chooses the queue: a client needs none of the others
            template.id = number
            answer.message_queues.append(template)
        return answer

    async def query_assignment(self, request: Any, context: Any) -> Any:
        """One queue that stands for all: any consumer of a group may get the messages of any queue."""
        check_group(request.group.name)
        await self._topics.queues_of(request.topic.name)
        answer = _ASSIGNED(status=OK)
        answer.assignments.add().message_queue.CopyFrom(_queue(request, ANY_QUEUE))
        return answer


def _queue(request: Any, number: int) -> Any:
    """A queue of the request's topic, at the address that the request says it has dialled."""
    queue = _QUEUE(topic=request.topic, id=number, permission=Permission.READ_WRITE)
    queue.broker.name = BROKER
    queue.broker.id = 0
    queue.broker.endpoints.CopyFrom(request.endpoints)
    return queue
