"""A store that is filled in bulk, here or in a child process that dies without closing it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...store import MessageStore
from ...testing import TunedConfig
from .checker import WrongResult
from .contest import Sizes, Workload
from .phases import Drive, append_phase
from .producers import Track

FILL_BATCH_MESSAGES = 512


def fill(store: MessageStore, work: Workload, size_bytes: int) -> int:
    """Append `size_bytes` of the workload's next messages, in batches by one producer. Returns their number."""
    tracks = [Track(plan) for plan in work.plan(size_bytes)]
    append_phase(store, work, tracks, Drive("batch", batch_messages=FILL_BATCH_MESSAGES))
    check_offsets(tracks)
    return sum(track.done for track in tracks)


def check_offsets(tracks: list[Track]) -> None:
    """Raise WrongResult if an append returned another offset than the message's number in its queue."""
    if wrong := sum(track.wrong_offsets for track in tracks):
        raise WrongResult(f"{wrong} appends returned a wrong offset")


def fill_and_die(folder: Path, work: Workload, size_bytes: int, settings: Mapping[str, Any]) -> None:
    """Fill a store in a child process that ends at once after its last answer, without a close.

    The same plan is made here again, so that `work.written` says what must be in the store.
    """
    context = multiprocessing.get_context("spawn")
    shape = (work.seed, work.sizes, 1, len(work.addresses))
    child = context.Process(target=_child, args=(folder, shape, size_bytes, dict(settings)))
    child.start()
    try:
        child.join()
    except BaseException:  # above all an interrupt
        child.kill()  # it would go on writing to a folder that is being removed
        child.join()
        raise
    if child.exitcode != 0:
        raise RuntimeError(f"the filling process ended with {child.exitcode}")
    work.plan(size_bytes)


def _child(folder: Path, shape: tuple[int, Sizes, int, int], size_bytes: int, settings: dict[str, Any]) -> None:
    store = MessageStore.open(folder, config=TunedConfig(**settings))
    fill(store, Workload(*shape), size_bytes)
    os._exit(0)
