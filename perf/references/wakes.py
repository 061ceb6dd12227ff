"""What it costs to wake a thread or a coroutine on this machine: without a store, without a device."""

from __future__ import annotations

import asyncio
import threading
from time import perf_counter, sleep

Times = dict[str, float]


def thread_to_thread(seconds: float) -> Times:
    """ "us": two threads wake each other by turns; the time of one wake-up, with the way through the interpreter."""
    first, second, over = threading.Lock(), threading.Lock(), threading.Event()
    first.acquire()
    second.acquire()

    def answer() -> None:
        while True:
            second.acquire()
            first.release()
            if over.is_set():
                return

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    turns, began = 0, perf_counter()
    while (took := perf_counter() - began) < seconds or not turns:
        second.release()
        first.acquire()
        turns += 1
    over.set()
    second.release()
    first.acquire()
    thread.join()
    return {"us": took / (2 * turns) * 1e6}


def many_threads(threads: int, seconds: float) -> Times:
    """ "us": one thread wakes so many, each at a lock of its own, until all have answered; a thread's part."""
    locks = [threading.Lock() for _ in range(threads)]
    for lock in locks:
        lock.acquire()
    counted, all_there = threading.Lock(), threading.Lock()
    all_there.acquire()
    waiting, over = threads, False

    def wait(lock: threading.Lock) -> None:
        nonlocal waiting
        while True:
            lock.acquire()
            if over:
                return
            with counted:
                waiting -= 1
                if not waiting:
                    all_there.release()

    started = [threading.Thread(target=wait, args=(lock,), daemon=True) for lock in locks]
    for thread in started:
        thread.start()
    turns, began = 0, perf_counter()
    while (took := perf_counter() - began) < seconds or not turns:
        waiting = threads
        for lock in locks:
            lock.release()
        all_there.acquire()
        turns += 1
    over = True
    for lock in locks:
        lock.release()
    for thread in started:
        thread.join()
    return {"us": took / (turns * threads) * 1e6}


def coroutines(tasks: int, seconds: float) -> Times:
    """ "us": another thread answers so many futures of an event loop with one call into it; a coroutine's part."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        asked, over = threading.Semaphore(0), threading.Event()
        futures: list[asyncio.Future[None]] = []

        def resolve() -> None:
            for future in futures:
                future.set_result(None)

        def answer() -> None:
            while asked.acquire() and not over.is_set():
                loop.call_soon_threadsafe(resolve)

        async def wait(future: asyncio.Future[None]) -> None:
            await future

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        turns, began = 0, perf_counter()
        while (took := perf_counter() - began) < seconds or not turns:
            futures = [loop.create_future() for _ in range(tasks)]
            waiting = [asyncio.ensure_future(wait(future)) for future in futures]
            await asyncio.sleep(0)
            asked.release()
            await asyncio.gather(*waiting)
            turns += 1
        over.set()
        asked.release()
        thread.join()
        return took / (turns * tasks) * 1e6

    return {"us": asyncio.run(main())}


def late(wanted_s: float, seconds: float) -> Times:
    """ "us": how much later than asked for a sleep of `wanted_s` ends, the mean."""
    turns, began = 0, perf_counter()
    while (took := perf_counter() - began) < seconds or not turns:
        sleep(wanted_s)
        turns += 1
    return {"us": (took / turns - wanted_s) * 1e6}
