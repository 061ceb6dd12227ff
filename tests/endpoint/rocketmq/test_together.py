"""Calls that come together are made together, and none is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from stratalog.endpoint.rocketmq.together import Together

from ..server.echoes import until


def test_calls_that_come_meanwhile_are_made_in_one_step_and_in_order() -> None:
    async def main() -> None:
        together, begun, ends = Together(), list[int](), dict[int, asyncio.Future[int]]()

        def make(number: int) -> asyncio.Future[int]:
            begun.append(number)
            ends[number] = asyncio.get_running_loop().create_future()
            return ends[number]

        calls = [asyncio.ensure_future(together.call(lambda number=number: make(number))) for number in range(5)]  # type: ignore[misc]
        await asyncio.sleep(0.01)
        assert begun == [0]
        ends[0].set_result(0)
        await until(lambda: len(begun) >= 5)
        assert begun == [0, 1, 2, 3, 4]
        for number in range(1, 5):
            ends[number].set_result(number)
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]

    asyncio.run(main())


def test_calls_that_fail_or_are_cancelled_hold_up_no_others() -> None:
    async def main() -> None:
        together, first = Together(), asyncio.get_running_loop().create_future()

        async def works() -> str:
            return "works"

        def fails() -> asyncio.Future[str]:
            raise ValueError

        def waits() -> asyncio.Future[str]:
            return first

        running = asyncio.ensure_future(together.call(waits))
        await asyncio.sleep(0)
        dropped = asyncio.ensure_future(together.call(works))
        failing = asyncio.ensure_future(together.call(fails))
        working = asyncio.ensure_future(together.call(works))
        await asyncio.sleep(0)
        dropped.cancel()
        running.cancel()
        assert await asyncio.wait_for(working, 20) == "works"
        with pytest.raises(ValueError):
            await failing
        assert await asyncio.wait_for(together.call(works), 20) == "works"

    asyncio.run(main())


def test_a_call_that_does_not_end_does_not_keep_the_others() -> None:
    async def main() -> None:
        together, never = Together(), asyncio.get_running_loop().create_future()

        async def works() -> str:
            return "works"

        def waits() -> asyncio.Future[str]:
            return never

        stuck = asyncio.ensure_future(together.call(waits))
        await asyncio.sleep(0)
        calls = [asyncio.ensure_future(together.call(works)) for _ in range(3)]
        assert await asyncio.wait_for(asyncio.gather(*calls), 20) == ["works"] * 3
        assert not stuck.done()
        stuck.cancel()

    asyncio.run(main())
