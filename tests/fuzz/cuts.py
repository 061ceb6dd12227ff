"""Crashes inside a repair: the repair runs on a simulated disk, and the power is cut at moments of it.

What such a cut leaves is written to a real folder, repaired there, and must be as good as what an uninterrupted repair
leaves. Only the losses are another thing: those of the interrupted repair were told to nobody, so the second one may
tell of fewer; it must not tell of more.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

from stratalog.store import MessageStore, StoreError, verify_folder
from stratalog.store.testing import Operation, SimulatedDisk
from tests.store.helpers import Snapshot, put_snapshot

from .cases import Case
from .checks import Broken, Expected, Reading
from .orders import open_repairing, without_lock
from .stories import config

AGAIN = 0.3  # of the states are interrupted a second time


def run_cuts(case: Case, count: int) -> int:
    """Cut the power at up to `count` moments of the case's repair, and check what each leaves; how many there were.

    Some of what is left is repaired and interrupted once more before it is checked.
    """
    if case.store_is_hurt():
        return 0
    home = case.path.with_name("simulated")
    left = crash_states(case.damaged, home, case.chance, count)
    cuts = len(left)
    for state in left:
        if case.chance.random() < AGAIN:
            for later in crash_states(state, home, case.chance, 1):
                cuts += 1
                check_state(case, later)
        else:
            check_state(case, state)
    return cuts


def crash_states(damaged: Snapshot, home: Path, chance: random.Random, count: int) -> list[Snapshot]:
    """Repair on a simulated disk; what power cuts before `count` of its operations would leave, all equally likely."""
    shutil.rmtree(home, ignore_errors=True)
    disk = load(damaged, home)
    left: list[SimulatedDisk] = []
    operations = 0

    def on_operation(_operation: Operation) -> None:
        nonlocal operations
        operations += 1
        if len(left) < count:
            left.append(disk.crash(chance))
        elif chance.random() < count / operations:
            left[chance.randrange(count)] = disk.crash(chance)

    disk.on_operation = on_operation
    with contextlib.suppress(StoreError):  # what an uninterrupted repair must do is checked elsewhere
        MessageStore.open(home, config(), repair=True, disk=disk).close()
    return [as_snapshot(one, damaged, home) for one in left]


def load(state: Snapshot, home: Path) -> SimulatedDisk:
    """The files of a folder on a simulated disk; all of it is forced."""
    disk = SimulatedDisk()
    disk.make_folder(home)
    for name, content in state.items():
        path = home / name
        if name.endswith("/"):
            disk.make_folder(path)
            continue
        disk.make_folder(path.parent)
        file = disk.open(path, create=True)
        if content:
            file.write([content], 0)
        file.force()
        file.close()
        disk.force_folder(path.parent)
    return disk


def as_snapshot(disk: SimulatedDisk, before: Snapshot, home: Path) -> Snapshot:
    """The files of a simulated disk, and the folders that were there."""
    folders = {name: content for name, content in before.items() if name.endswith("/")}
    files = {str(path.relative_to(home)): content for path, content in disk.files().items()}
    made = {f"{parent}/": b"" for name in files for parent in [name.rpartition("/")[0]] if parent}
    return {**folders, **made, **without_lock(files)}


def check_state(case: Case, state: Snapshot) -> None:
    """Repair what a cut has left, and check it. Raises Broken."""
    put_snapshot(state, case.path)
    case.expected = Expected(case.places.story)
    with open_repairing(case.path, case.order.config()) as store:
        losses = list(store.losses)
        case.check_repaired(Reading(store, case.expected, case.chance), losses, told_all=False)
    report = verify_folder(case.path)
    if not report.ok:
        raise Broken("a repaired store does not verify", str(report.damages))
    case.check_second_life(losses, told_all=False)
