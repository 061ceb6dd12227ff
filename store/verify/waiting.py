"""Checks the bulk commits that wait in a closed store: their manifests and shards, with all payloads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..device.disk import Disk
from ..device.looking import LookingDisk
from ..errors import StoreCorrupt
from ..format.applied import batches_in
from ..format.shard import MANIFEST_SUFFIX, CommitBefore, Manifest
from ..format.store_files import StoreHeader
from ..recovery.applied import applied_tables
from ..shards.attacher import was_before
from ..shards.loading import check_payloads
from ..shards.staging import DAMAGED_MANIFEST, incoming_of, is_refused, load_shard, read_all
from .report import Findings

MANIFEST_IS_MISSING = "the manifest of a commit that was to be attached before another one is missing"


def check_waiting(disk: Disk, store: Path, header: StoreHeader, findings: Findings) -> None:
    """Note damage that keeps a waiting commit from being attached whole."""
    folder = incoming_of(store)
    names = sorted(name for name in disk.list(folder) if name.endswith(MANIFEST_SUFFIX))
    for name in names:
        try:
            manifest = Manifest.unpack(read_all(disk, folder / name))
            if manifest is None:
                findings.damage(DAMAGED_MANIFEST, folder / name, 0)
                continue
            before = manifest.before
            if before is not None and before.file not in names and not is_refused(disk, store, before.file):
                _check_before(store, header, manifest, before, findings)
            for shard in manifest.shards:
                check_payloads(disk, load_shard(disk, store, shard))
        except StoreCorrupt as error:
            findings.damage(error.what, Path(error.file), error.position)
        except OSError as error:
            findings.damage(f"cannot be read ({error})", folder / name, 0)


def _check_before(
    store: Path, header: StoreHeader, manifest: Manifest, before: CommitBefore, findings: Findings
) -> None:
    """Check that a commit was attached whose manifest is gone. Recovery knows the attached ones."""
    try:
        tables = applied_tables(LookingDisk(), store, header)
    except StoreCorrupt:
        return  # the check of the lane has reported it, and the lane's table proves nothing
    if not was_before(manifest, partial(batches_in, tables)):
        findings.damage(MANIFEST_IS_MISSING, incoming_of(store) / before.file, 0)
