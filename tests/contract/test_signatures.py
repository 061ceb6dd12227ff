"""A connection has the calls of a store, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from stratalog import MessageStore, Subscription, Transaction
from stratalog.endpoint.remote.client.store import RemoteStore
from stratalog.endpoint.remote.client.subscription import RemoteSubscription
from stratalog.endpoint.remote.client.topics_subscription import RemoteTopicsSubscription
from stratalog.endpoint.remote.client.transaction import RemoteTransaction
from stratalog.store import TopicsSubscription

PAIRS = [
    (MessageStore, RemoteStore), (Subscription, RemoteSubscription), (TopicsSubscription, RemoteTopicsSubscription),
    (Transaction, RemoteTransaction),
]  # fmt: skip
OF_A_FOLDER = {"open"}  # a connection has no folder to open


@pytest.mark.parametrize(("local", "remote"), PAIRS)
def test_calls_and_arguments_are_the_same(local: Any, remote: Any) -> None:
    names = {name for name in dir(local) if not name.startswith("_")} - OF_A_FOLDER
    assert names - set(dir(remote)) == set()
    for name in names:
        mine, theirs = getattr(local, name), getattr(remote, name)
        if not callable(mine):
            continue
        told = [
            [(one.name, one.kind, one.default) for one in inspect.signature(call).parameters.values()]
            for call in (mine, theirs)
        ]
        assert told[0] == told[1], name
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs), name
        assert inspect.getdoc(theirs), name
