"""What may happen to a shop and a worker between which stands a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from orders.shop import Shop, Unavailable
from orders.worker import GROUP, INVISIBLE_S, Books, Worker

from stratalog.endpoint import Code, RocketMQHarness, RocketMQProcess

DAY_S = 86_400


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    made = Books(tmp_path / "books.sqlite")
    yield made
    made.close()


@pytest.fixture
def shop(rocketmq: RocketMQHarness) -> Iterator[Shop]:
    with Shop(rocketmq.address) as made:
        yield made


@pytest.fixture
def worker(rocketmq: RocketMQHarness, books: Books) -> Iterator[Worker]:
    with Worker(rocketmq.address, books) as made:
        yield made


def eventually(call: Callable[[], Any]) -> Any:
    """What a call gives once it does not fail: a client that runs needs a moment to find the broker again."""
    for _ in range(100):
        try:
            return call()
        except Exception:
            time.sleep(0.1)
    return call()


def work_until(worker: Worker, is_done: Callable[[], object]) -> None:
    """Let the worker work until something is so, but not for ever."""
    for _ in range(50):
        if is_done():
            break
        eventually(worker.work)


def booked(worker: Worker, count: int) -> dict[str, int]:
    """The books, once there are so many orders in them."""
    work_until(worker, lambda: len(worker.books.booked()) >= count)
    return worker.books.booked()


def test_an_order_is_booked(rocketmq: RocketMQHarness, shop: Shop, worker: Worker) -> None:
    shop.place("o-1", 250)
    assert booked(worker, 1) == {"o-1": 250}
    rocketmq.wait_until_idle(GROUP, "orders")
    (sent,) = rocketmq.sent("orders")
    assert (sent.keys, sent.tag) == (("o-1",), "small")


@pytest.mark.parametrize("death", ["kill", "power_cut"])
def test_orders_outlive_the_broker(rocketmq: RocketMQHarness, shop: Shop, worker: Worker, death: str) -> None:
    shop.place("o-1", 250)
    shop.place("o-2", 300)
    getattr(rocketmq, death)()
    with pytest.raises(Unavailable):
        shop.place("o-3", 350)
    rocketmq.start()
    eventually(lambda: shop.place("o-4", 400))
    assert booked(worker, 3) == {"o-1": 250, "o-2": 300, "o-4": 400}


def test_orders_outlive_the_process_of_the_broker(rocketmq_process: RocketMQProcess, books: Books) -> None:
    with Shop(rocketmq_process.address) as shop, Worker(rocketmq_process.address, books) as worker:
        shop.place("o-1", 250)
        rocketmq_process.kill()
        rocketmq_process.start()
        eventually(lambda: shop.place("o-2", 300))
        assert booked(worker, 2) == {"o-1": 250, "o-2": 300}


def test_an_answer_that_is_lost_makes_no_second_order(rocketmq: RocketMQHarness, shop: Shop) -> None:
    lost = rocketmq.faults.tear(method="SendMessage")
    shop.place("o-1", 250)  # the client sends it again
    assert lost.strikes == 1
    assert len(rocketmq.calls.of(method="SendMessage")) == 2
    assert len(rocketmq.sent("orders")) == 1


def test_the_customer_hears_that_an_order_was_not_placed(rocketmq: RocketMQHarness, shop: Shop) -> None:
    rocketmq.faults.fail(Code.INTERNAL_SERVER_ERROR, "disk on fire", times=3, method="SendMessage", topic="orders")
    with pytest.raises(Unavailable, match="disk on fire"):
        shop.place("o-1", 250)
    assert rocketmq.sent("orders") == []
    shop.place("o-2", 300)


def test_an_order_whose_worker_dies_is_booked_by_the_next_one(
    rocketmq: RocketMQHarness, shop: Shop, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(worker: Worker, message: Any) -> None:
        raise SystemExit

    shop.place("o-1", 250)
    with monkeypatch.context() as dying, Worker(rocketmq.address, books) as worker:
        dying.setattr(Worker, "book", die)
        with pytest.raises(SystemExit):
            for _ in range(50):
                worker.work()
    with Worker(rocketmq.address, books) as worker:
        rocketmq.clock.advance(ms=INVISIBLE_S * 1000)
        assert booked(worker, 1) == {"o-1": 250}


def test_an_order_whose_acknowledgement_fails_comes_again_and_is_booked_once(
    rocketmq: RocketMQHarness, shop: Shop, worker: Worker
) -> None:
    shop.place("o-1", 250)
    rocketmq.faults.drop(method="AckMessage")
    with pytest.raises(Exception, match="Socket closed"):
        booked_by = [worker.work() for _ in range(50)]
        raise AssertionError(f"no acknowledgement failed: {booked_by}")
    assert worker.books.booked() == {"o-1": 250}
    rocketmq.clock.advance(ms=INVISIBLE_S * 1000)
    work_until(worker, lambda: rocketmq.calls.of(method="AckMessage", where=lambda call: call.code == Code.OK))
    assert worker.books.booked() == {"o-1": 250}
    rocketmq.wait_until_idle(GROUP, "orders")


def test_a_reminder_comes_after_a_day(rocketmq: RocketMQHarness, shop: Shop, worker: Worker) -> None:
    shop.remind("o-1", 250, at_s=rocketmq.clock.wall_ms() // 1000 + DAY_S)
    assert len(rocketmq.sent("reminders")) == 1
    rocketmq.clock.advance(ms=(DAY_S + 1) * 1000)
    work_until(worker, lambda: worker.books.booked("reminders"))
    assert worker.books.booked("reminders") == {"o-1": 250}


def test_a_shop_behind_a_broken_network_disturbs_no_other_one(rocketmq: RocketMQHarness, shop: Shop) -> None:
    with rocketmq.faults.black_hole(client_id=shop.client_id), Shop(rocketmq.address) as another:
        another.place("o-1", 250)
    shop.place("o-2", 300)
    assert len(rocketmq.sent("orders")) == 2
