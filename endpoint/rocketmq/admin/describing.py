"""What there is: topics, subscriptions of groups, their backlogs and times, and the clients that are connected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import stratalog

from ...wire import CLASSES, Code
from ...wire.codes import ClientType, FilterType, MessageType
from ..naming import HALF_TOPIC
from ..statuses import OK, Refused, no_topic
from ..times import set_ms
from ..translating import TAG

if TYPE_CHECKING:
    from stratalog import MessageStore, SubscriptionInfo

    from ..clients import Client, Clients
    from ..topics import Topics

CLUSTERING: Final = 1  # of the consumption models: a message goes to one consumer of a group
CONSUMERS: Final = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)
LANGUAGES: Final = ("", "JAVA", "CPP", "DOT_NET", "GOLANG", "RUST", "PYTHON", "PHP", "NODE_JS", "RUBY", "OBJECTIVE_C",
                    "DART", "KOTLIN")  # fmt: skip


class Describing:
    """Answers what a dashboard shows. Used on one event loop; the store is asked in threads."""

    def __init__(self, store: MessageStore, clients: Clients, topics: Topics, connections: Callable[[], int]) -> None:
        self._store = store
        self._clients = clients
        self._topics = topics
        self._connections = connections

    async def describe_topic_status(self, request: Any, context: Any) -> Any:
        """Whether there is a topic, and the type of its messages if it takes one alone; its queues, messages and all of
        the types that it takes are in the tags. Without a topic all topics are, with the number of their queues.
        """
        topic = request.topic.name
        if not topic:
            return await asyncio.to_thread(self._all_topics)
        queues = self._store.queues(topic)
        if not queues:
            raise no_topic(topic)
        bounds = [self._store.queue_bounds(topic, queue_id) for queue_id in queues]
        types = self._topics.types_of(topic)
        only = types[0] if len(types) == 1 else MessageType.NORMAL
        answer = CLASSES["DescribeTopicStatusResponse"](status=OK, topic_message_type=only)
        answer.tags["types"] = ", ".join([one.name for one in types])
        answer.tags["queues"] = str(len(queues))
        answer.tags["messages"] = str(sum(end - first for first, end in bounds))
        return answer

    def _all_topics(self) -> Any:
        answer = CLASSES["DescribeTopicStatusResponse"](status=OK)
        for topic in self._store.topics():  # all of them are the answer to a dashboard's question
            if topic != HALF_TOPIC:
                answer.tags[topic] = str(len(self._store.queues(topic)))
        return answer

    async def list_subscription(self, request: Any, context: Any) -> Any:
        """The subscriptions of a topic, of a group, of both, or all."""
        answer = CLASSES["ListSubscriptionResponse"](status=OK)
        infos = await self._subscriptions(request.topic.name, request.group.name)
        told = {(one.topic.name, client.settings.subscription.group.name) for client, one in self._told("", "")}
        for info in infos:
            _fill(answer.subscription_info.add(), info, is_online=(info.topic, info.name) in told)
        return answer

    async def describe_subscription(self, request: Any, context: Any) -> Any:
        """The subscriptions that connected clients have told of."""
        answer = CLASSES["DescribeSubscriptionResponse"](status=OK)
        for client, told in self._told(request.topic.name, request.group.name):
            one = answer.client_subscription_info.add()
            _fill_client(one.client_info, client)
            one.subscription_info.group.name = client.settings.subscription.group.name
            one.subscription_info.topic.CopyFrom(told.topic)
            one.subscription_info.expression.CopyFrom(told.expression)
            one.subscription_info.online, one.subscription_info.message_model = True, CLUSTERING
        return answer

    async def list_consumer_connection(self, request: Any, context: Any) -> Any:
        """The consumers of a group that are connected."""
        answer = CLASSES["ListConsumerConnectionResponse"](status=OK)
        found = {client.name: client for client, _ in self._told(request.topic.name, request.group.name)}
        for client in found.values():
            _fill_client(answer.client_info.add(), client)
        return answer

    async def describe_group_accumulation(self, request: Any, context: Any) -> Any:
        """What a group has not acknowledged: in all, and by topic. Delayed messages count as ready."""
        infos = await self.of_group(request.group.name, {one.name for one in request.topics})
        answer = CLASSES["DescribeGroupAccumulationResponse"](status=OK)
        for info in infos:
            _count(answer.topic_accumulation.add(key=info.topic).value, [info])
        _count(answer.accumulation, infos)
        return answer

    async def query_time_span(self, request: Any, context: Any) -> Any:
        """Of each queue the times of its first and last message, and of the next one that the group consumes."""
        infos = await self.of_group(request.group.name, {one.name for one in request.topics})
        answer = CLASSES["QueryTimeSpanResponse"](status=OK)
        await asyncio.to_thread(self._fill_spans, answer, infos)
        return answer

    async def get_proxy_runtime_stats(self, request: Any, context: Any) -> Any:
        """The connections and clients of this endpoint."""
        known = [client for client in self._clients.all() if client.settings is not None]
        consumers = sum(client.settings.client_type in CONSUMERS for client in known)
        return CLASSES["GetProxyRuntimeStatsResponse"](
            status=OK, proxy_name="stratalog", version=stratalog.__version__, connections=self._connections(),
            producers=sum(client.is_producer for client in known), consumers=consumers,
        )  # fmt: skip

    async def of_group(self, group: str, topics: set[str]) -> list[SubscriptionInfo]:
        """The subscriptions of a group to these topics, or to all. Raises Refused, if there is none."""
        found = [info for info in await self._subscriptions("", group) if not topics or info.topic in topics]
        if not group or not found:
            raise Refused(Code.CONSUMER_GROUP_NOT_FOUND, f"there is no consumer group {group!r} of such topics")
        return found

    async def _subscriptions(self, topic: str, group: str) -> list[SubscriptionInfo]:
        """Those of the topic and group, or of all: one question of a dashboard is one walk, in a thread."""
        infos = await asyncio.to_thread(self._store.subscriptions, topic or None)
        return [info for info in infos if group in ("", info.name) and info.topic != HALF_TOPIC]

    def _told(self, topic: str, group: str) -> Iterator[tuple[Client, Any]]:
        """Connected consumers with each of their subscriptions to the topic and group, or to all."""
        for client in self._clients.all():
            if client.settings is None or not client.streams or client.is_producer:
                continue
            if group in ("", client.settings.subscription.group.name):
                for one in client.settings.subscription.subscriptions:  # in `MOST_SETTINGS_BYTES` of settings
                    if topic in ("", one.topic.name):
                        yield client, one

    def _fill_spans(self, answer: Any, infos: Sequence[SubscriptionInfo]) -> None:
        now_ms = time.time_ns() // 1_000_000
        for info in infos:
            for queue_id, position in info.positions.items():
                first, end = self._store.queue_bounds(info.topic, queue_id)
                span = answer.queue_time_span_list.add()
                span.message_queue.topic.name, span.message_queue.id = info.topic, queue_id
                if first < end:
                    span.min_timestamp = self._time_ms(info.topic, queue_id, first)
                    span.max_timestamp = self._time_ms(info.topic, queue_id, end - 1)
                at = max(position.mark_delete, first)
                if at < end:
                    span.consume_timestamp = self._time_ms(info.topic, queue_id, at)
                    span.delay_time_ms = max(0, now_ms - span.consume_timestamp)

    def _time_ms(self, topic: str, queue_id: int, offset: int) -> int:
        found = self._store.read(topic, queue_id, offset, max_messages=1)
        return found[0].timestamp_ms if found else 0


def _fill(answer: Any, info: SubscriptionInfo, *, is_online: bool) -> None:
    answer.group.name, answer.topic.name = info.name, info.topic
    wanted = info.settings.filter
    answer.expression.type, answer.expression.expression = FilterType.TAG, "*"
    if isinstance(wanted, str):
        answer.expression.type, answer.expression.expression = FilterType.SQL, wanted
    elif wanted is not None and TAG in wanted:
        answer.expression.expression = " || ".join(wanted[TAG])
    answer.online, answer.message_model, answer.subscription_consistency = is_online, CLUSTERING, True


def _count(answer: Any, infos: Sequence[SubscriptionInfo]) -> None:
    answer.inflight_messages = sum(info.backlog.in_flight for info in infos)
    answer.accumulation = sum(info.backlog.total for info in infos)
    answer.ready_messages = answer.accumulation - answer.inflight_messages
    oldest_ms = min((info.oldest_ms for info in infos if info.oldest_ms is not None), default=None)
    if oldest_ms is not None:
        set_ms(answer.deliver_delay_time, max(0, time.time_ns() // 1_000_000 - oldest_ms))


def _fill_client(answer: Any, client: Client) -> None:
    agent = client.settings.user_agent
    answer.client_id, answer.version, answer.hostname = client.name, agent.version, agent.hostname
    answer.language = LANGUAGES[agent.language] if 0 <= agent.language < len(LANGUAGES) else ""
    answer.message_model = CLUSTERING
