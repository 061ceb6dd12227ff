"""What the checks of a damaged store share: what its seed decides, what they saw, and what a loss says."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stratalog.store import Loss, MessageStore, StoreConfig, StoreError
from stratalog.store.format.live_page import LIVE_FILE
from tests.store.helpers import Snapshot, is_spare

from .checks import Broken
from .stories import config, with_caches


class Order(NamedTuple):
    """What else is decided by the seed of a case."""

    caches: bool
    plain_first: bool  # the repair gets the folder that the plain opening left, else a fresh copy
    append_plainly: bool
    append_in_repair: bool
    retire: bool  # all that retention may take, once it was opened plainly
    seed: int

    @classmethod
    def draw(cls, chance: random.Random, *, bulk: bool) -> Order:
        """Caches are left to stores with few messages: to fill them costs more than all else."""
        return cls(
            chance.random() < (0.0 if bulk else 0.1), chance.random() < 0.3, chance.random() < 0.7,
            chance.random() < 0.4, chance.random() < 0.1, chance.getrandbits(30),
        )  # fmt: skip

    def config(self) -> StoreConfig:
        """The settings of the opened store."""
        return with_caches() if self.caches else config()


@dataclass
class Seen:
    """What the checks of one case saw, for the statistics."""

    refused: bool = False
    reported: bool = False
    missing: int = 0
    lost: int = 0
    unknown: bool = False  # a loss without a count


def says_again(loss: Loss) -> bool:
    """Does a loss say that offsets may be given again?"""
    return bool(getattr(loss, "offsets_may_repeat", False))


def lane_of(loss: Loss) -> int:
    """The lane that a loss is in."""
    return next(int(part[5:]) for part in Path(loss.file).parts if part.startswith("lane-"))


def open_repairing(path: Path, settings: StoreConfig) -> contextlib.closing[MessageStore]:
    """Open with a repair. Raises Broken if that refuses."""
    try:
        return contextlib.closing(MessageStore.open(path, settings, repair=True))
    except StoreError as error:
        raise Broken("a repair does not open the store", f"{type(error).__name__}: {error}") from error


def check_quarantine(path: Path, losses: Sequence[Loss]) -> None:
    """Every loss with bytes has them in the quarantine folder."""
    for loss in losses:
        if loss.quarantined_to is not None:
            copy = Path(loss.quarantined_to)
            if not copy.is_file() or copy.stat().st_size != loss.size_bytes or copy.parent != path / "quarantine":
                raise Broken("a loss's bytes are not in the quarantine", str(loss))
        elif loss.size_bytes:
            raise Broken("a loss's bytes are not in the quarantine", str(loss))


def without_lock(state: Snapshot) -> Snapshot:
    """A folder's files, apart from LOCK and the live page, which every opening writes."""
    left_out = ("LOCK", LIVE_FILE)
    return {name: content for name, content in state.items() if name not in left_out and not name.endswith("/")}


def in_use(state: Snapshot) -> Snapshot:
    """The files without spares, and without what every opening may write: indexes of delays, the committers' note."""
    return {
        name: content
        for name, content in without_lock(state).items()
        if not is_spare(name, content) and not name.startswith(("delayed/", "incoming/"))
    }
