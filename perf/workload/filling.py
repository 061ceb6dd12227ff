"""A store that is filled in bulk."""

from __future__ import annotations

from ...store import MessageStore
from .checker import WrongResult
from .contest import Workload
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
