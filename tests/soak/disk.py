"""A disk for the soak: the system's, with one injected fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stratalog.store.device.disk import OsDisk
from stratalog.store.device.log_file import Buffer
from stratalog.store.device.os_file import OsFile
from stratalog.store.testing import Fault, Kind


class FaultyDisk(OsDisk):
    """The system's disk; the fault's Nth operation fails (and later ones, if it is for good)."""

    def __init__(self, fault: Fault, on_strike: Callable[[], None]) -> None:
        self._fault = fault
        self._on_strike = on_strike

    def meet(self, kind: Kind, path: Path) -> None:
        """Raise if this operation is the one that fails. Nothing of it is done then."""
        if kind == self._fault.kind and self._fault.strikes():
            self._on_strike()
            raise self._fault.make_error(str(path))

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        """Open a file whose operations can fail; opening can fail as well."""
        self.meet("create" if create else "open", path)
        return _FaultyFile(self, path, create=create, direct=direct)

    def rename(self, old: Path, new: Path) -> None:
        """Rename, or fail."""
        self.meet("rename", old)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove, or fail."""
        self.meet("remove", path)
        super().remove(path)

    def force_folder(self, folder: Path) -> None:
        """Force the names of a folder, or fail."""
        self.meet("force_folder", folder)
        super().force_folder(folder)


class _FaultyFile(OsFile):
    def __init__(self, disk: FaultyDisk, path: Path, *, create: bool, direct: bool) -> None:
        super().__init__(path, create=create, direct=direct)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        self._disk.meet("write", self.path)
        if force:
            self._disk.meet("force", self.path)
        super().write(parts, position, force=force)

    def force(self) -> None:
        self._disk.meet("force", self.path)
        super().force()

    def read(self, position: int, size: int) -> bytes:
        self._disk.meet("read", self.path)
        return super().read(position, size)

    def truncate(self, size: int) -> None:
        self._disk.meet("truncate", self.path)
        super().truncate(size)

    def reserve(self, size: int) -> None:
        self._disk.meet("reserve", self.path)
        super().reserve(size)
