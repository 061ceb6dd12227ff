"""Checks a closed store: every frame of every segment, every checksum, and whether all parts agree.

The rule of damage is that of recovery, see `evidence`. Where the chain of frames breaks, a mark in a later frame or a
seal record may say that the lane was durable beyond the break: then it is damage. Otherwise the rest was never
acknowledged: a torn tail, normal after a crash. The check notes damage and goes on after it. A footer leaves out frames
that a repair gave up; they are not damage.

This module checks the parts of a folder. `lane` checks the segments of a lane and their links, `frames` the frames of a
segment, and `footer` its footer. `waiting` checks the bulk commits that wait. `report` holds the findings.
"""

from __future__ import annotations

from pathlib import Path

from ..device.disk import OsDisk, ReadingDisk
from ..device.folder import HEADER_IS_DAMAGED, STORE_FILE, check_version, fixed_path, looking_at
from ..format.layout import lane_name
from ..format.store_files import StoreHeader
from ..segment.evidence import LANE_IS_MISSING
from .lane import LaneCheck
from .report import Findings, Progress, VerifyReport, differ
from .waiting import check_waiting


def verify_folder(path: str | Path, progress: Progress | None = None) -> VerifyReport:
    """Read all of a closed store and check it: see `api.beside.verify_folder`. Raises StoreLocked if it is open."""
    folder, disk = fixed_path(path), ReadingDisk()
    with looking_at(disk, folder):
        findings = Findings(progress)
        _check_folder(disk, folder, findings)
        return findings.report


def _check_folder(disk: OsDisk, folder: Path, findings: Findings) -> None:
    """Check the STORE file, then lane after lane."""
    header = _store_header(folder, findings)
    found = [int(name[5:]) for name in disk.list(folder) if name.startswith("lane-") and name[5:].isdecimal()]
    store_id = header.store_id if header is not None else None
    lanes: list[LaneCheck] = []
    for number in range(header.lanes) if header is not None else found:
        try:
            lanes.append(LaneCheck(disk, folder, number, store_id, findings))
        except OSError as error:
            findings.damage(f"cannot be read ({error})", folder / lane_name(number), 0)
    if header is not None:
        for number in sorted({*range(header.lanes)} - {*found}):
            findings.damage(LANE_IS_MISSING, folder / lane_name(number), 0)
    findings.total_bytes = sum(file.used_bytes for lane in lanes for file in lane.used)
    for lane in lanes:
        lane.run()
    if header is not None:
        check_waiting(disk, folder, header, findings)


def _store_header(folder: Path, findings: Findings) -> StoreHeader | None:
    path = folder / STORE_FILE
    try:
        block = path.read_bytes()
    except OSError as error:
        findings.damage(f"cannot be read ({error})", path, 0)
        return None
    check_version(block, folder)
    header = StoreHeader.unpack(block)
    if header is None:
        findings.damage(HEADER_IS_DAMAGED, path, 0)
    elif block != header.pack():
        findings.remark("the store's header is not filled up with zeros", path, differ(block, header.pack()))
    return header


__all__ = ["VerifyReport", "verify_folder"]
