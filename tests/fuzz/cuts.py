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

from store import MessageStore, StoreError, verify_folder
from store.testing import Operation, SimulatedDisk
from tests.store.helpers import Snapshot, put_snapshot

from .cases import Case, open_repairing, without_lock
from .checks import Broken, Expected, Reading
from .stories import config


def run_cuts(case: Case, count: int) -> int:
    """Cut the power at up to `count` moments of the case's repair, and check each; how many there were."""
    if case.store_is_hurt():
        return 0
    home = case.path.with_name("simulated")
    moments = case.chance.sample(range(1, 400), 4 * count)
    left = crash_states(case.damaged, home, case.chance, moments)
    chosen = case.chance.sample(left, min(count, len(left)))
    for state in chosen:
        put_snapshot(state, case.path)
        case.expected = Expected(case.places.story)
        check_state(case)
    return len(chosen)


def crash_states(damaged: Snapshot, home: Path, chance: random.Random, moments: list[int]) -> list[Snapshot]:
    """Repair on a simulated disk; what power cuts before these operations would leave, and one at the very end."""
    shutil.rmtree(home, ignore_errors=True)
    disk = load(damaged, home)
    left: list[SimulatedDisk] = []
    begin = disk.operations

    def on_operation(_operation: Operation) -> None:
        if disk.operations - begin in moments:
            left.append(disk.crash(chance))

    disk.on_operation = on_operation
    with contextlib.suppress(StoreError):  # what an uninterrupted repair must do is checked elsewhere
        store = MessageStore.open(home, config(), repair=True, disk=disk)
        disk.on_operation = None
        left.append(disk.crash(chance))
        store.close()
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


def check_state(case: Case) -> None:
    """Repair what a cut has left, and check it. Raises Broken."""

    with open_repairing(case.path, case.order.config()) as store:
        losses = list(store.losses)
        case.check_repaired(Reading(store, case.expected, case.chance), losses, told_all=False)

    report = verify_folder(case.path)
    if not report.ok:
        raise Broken("a repaired store does not verify", str(report.damages))
    case.check_second_life(losses, told_all=False)
