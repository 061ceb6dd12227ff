"""The official Python client, as the tests use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

POLL_S = 5
VISIBLE_S = 15


def configuration(address: str) -> Any:
    return ClientConfiguration(address, Credentials(), "")


@contextmanager
def producer(address: str, *topics: str, checker: Any = None) -> Iterator[Any]:
    made = Producer(configuration(address), topics, checker)
    made.startup()
    try:
        yield made
    finally:
        made.shutdown()


@contextmanager
def consumer(address: str, group: str, topic: str, wanted: Any = None) -> Iterator[Any]:
    expression = FilterExpression("*") if wanted is None else wanted
    made = SimpleConsumer(configuration(address), group, {topic: expression}, await_duration=POLL_S)
    made.startup()
    try:
        yield made
    finally:
        made.shutdown()


def message(topic: str, body: bytes, **given: Any) -> Any:
    """A message; `properties` is a dict, the others are the client's names."""
    made = Message()
    made.topic, made.body = topic, body
    for name, value in given.pop("properties", {}).items():
        made.add_property(name, value)
    for name, value in given.items():
        setattr(made, name, value)
    return made


def receive_all(consumer: Any, count: int, *, ack: bool = True) -> Sequence[Any]:
    """Receive until there are `count` messages, or until a poll brings none."""
    found: list[Any] = []
    while len(found) < count and (got := consumer.receive(32, VISIBLE_S)):
        found += got
        if ack:
            for one in got:
                consumer.ack(one)
    return found
