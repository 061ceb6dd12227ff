"""A simulated disk: `MessageStore.open(folder, disk=SimulatedDisk())` stores in memory, and the power can be cut.

The fault model
---------------
The disk keeps written and forced state apart, for bytes, lengths and names. A power cut (`crash`) leaves this:

* **Bytes.** Of each 4 KiB block that was written since it was last forced, any of its states survives, or the
  forced one: as a whole, or as 512-byte sectors of several states, or as torn sectors. Blocks survive in any
  order, whatever the order of the writes. A force settles all blocks of its file that were written before it;
  a write with `force` settles its own bytes and nothing else.
* **The device's own block** (`block_bytes`): if a write past the page cache takes a part of one, a power cut before its
  force may harm the rest.
* **Lengths.** A file that grew or was cut since its last force has any of its lengths since then, independent of
  its blocks. The part that grew without surviving bytes is zeros. A forced write settles the length as far
  as its bytes need it.
* **Names.** Creating, renaming and removing are durable only after `force_folder`. A force of the file does not
  make its name durable (some file systems promise more, none with certainty). Before it, any subset of
  a folder's changes survives, the first ones in order or any others. A rename is atomic: old name or new one.
  A new folder's name is durable when `make_folder` returns.
* **A failed force** (`Fault("force")`): the kernel takes the blocks for clean. They are read as written, and
  later forces succeed without them; whether the device has them is open until they are written again. Retrying
  the force therefore proves nothing (Rebello and others, "Can applications recover from fsync failures?",
  ATC 2020).
* **A failed write** leaves none of its bytes, or with `Fault.short` the first part of them. Any other call that
  fails has no effect.
* **The death of the process** (`kill`) takes nothing: the kernel lives on. But it forces nothing either: a power cut
  in the next life may still take bytes, lengths and names that no life has forced.
* **Mapped files.** All processes that map a file see a store into the mapping at once; so do later processes. It is
  never forced: a power cut leaves each 512-byte sector in any of its last states. It is no operation.
* **Leases** (`SimulatedFile.lease`), of files that were opened to read: the file is mapped. A program that opens it for
  writing or cuts it from outside (`cut`) asks for the lease. A cut waits until the lease was given back; outside of the
  simulation it does not wait forever, so a holder that ignores it loses. A touch of the mapping is `BusError`, the end
  of the process, after the end of a file that was cut, on a bad block, or after the lease was given back.
* **Bad sectors** (`spoil`): a block that the device cannot read. Reads of it are EIO, a mapped page of it is not in
  memory. A write makes it whole again. Pages that a process saw in memory less than half a second ago
  (`leased.TRUST_S`) are not evicted and spoilt in the model: let the clock go on between the two.
* **Reads past the page cache** see the written bytes, in whole blocks. All readable bytes are in memory: no
  read is slow, and hints do nothing.
* **Relative paths** lead from the working directory that the process has at the moment of the call.

Not in the model: memory that processes share (there is none), the age of files (all are new), a device that loses
forced bytes, or changes bytes by itself (`flip`, `put` and `take_away` do that from outside), and bytes of other files
in new blocks.

Errors are injected with `Fault`, by kind and count. `cut_at` cuts the power at the Nth operation: that one and all
later ones raise `PowerCut`. `on_operation` is called before each operation that changes something, with the disk as it
is. A call of `crash` there gives the disk that a cut at this moment leaves, and the run goes on: so one run tries every
moment.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .content import Content
from .faults import Fault, Faults, Kind, Operation, PowerCut
from .file import SimulatedFile
from .memory import SimulatedReads
from .names import Change, Names
from .outside import Outside
from .pages import SimulatedPage
from .survivors import BLOCK_BYTES, MANNERS, Manner, Survivors

FORCES = ("force", "force_folder")


class SimulatedDisk(Outside):
    """A `Disk` in memory. The module's text says what survives.

    A store does not ask the disk for the lock and the existence of folders. So `make_folder` makes a real folder as
    well; the only real file in it is `LOCK`.

    Args:
        faults: the errors to inject.
        capacity_bytes: writes beyond it raise ENOSPC; None sets no limit.
        block_bytes: the device's own block, 512 or 4,096.
    """

    def __init__(
        self, faults: Iterable[Fault] = (), *, capacity_bytes: int | None = None, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self.lock = threading.RLock()
        self.operations = 0  # that changed something, or tried to; counted with ..
        self.changes = 0  # .. and without forces, which do not change the written bytes
        self.open_files = 0
        self.on_operation: Callable[[Operation], None] | None = None
        self.cut_at: int | None = None
        self.capacity_bytes = capacity_bytes
        self.unit_bytes = block_bytes
        self._faults = Faults(faults)
        self._pages: dict[str, SimulatedPage] = {}  # of mapped files, by path
        self._folders: dict[str, Names] = {}  # by path; strings, as hashing a Path takes longer than a read

    # -- faults ---------------------------------------------------------------------------------------

    def inject(self, *faults: Fault) -> None:
        """Set errors to inject, in place of earlier ones; they count from now on."""
        self._faults = Faults(faults)

    @property
    def faults_struck(self) -> int:
        """How often a fault of the current ones struck."""
        return self._faults.struck

    def begin(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> Fault | None:
        """Count an operation that will change something, and call `on_operation`. Returns the fault that it meets.

        Raises PowerCut from the operation `cut_at` on.
        """
        self.operations += 1
        self.changes += kind not in FORCES
        if self.cut_at is not None and self.operations >= self.cut_at:
            raise PowerCut(errno.EIO, "the power was cut", str(path))
        if self.on_operation is not None:
            self.on_operation(Operation(kind, path, position, size))
        return self._faults.next(kind) if self._faults.kinds else None

    def look(self, path: Path) -> None:
        """Begin an operation that changes nothing. Raises PowerCut, or an injected error."""
        if self.cut_at is not None and self.operations >= self.cut_at:
            raise PowerCut(errno.EIO, "the power was cut", str(path))
        if self._faults.kinds:
            self._faults.strike("read", path)

    def take_space(self, content: Content, end: int) -> None:
        """Make sure that a file may grow to `end`. Raises OSError."""
        if self.capacity_bytes is None or end <= content.allocated_bytes:
            return
        if self.used_bytes() + end - content.allocated_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def safe_block_bytes(self, path: Path) -> int:
        return self.unit_bytes

    def used_bytes(self) -> int:
        """The space that the files with a name take."""
        return sum(file.allocated_bytes for names in self._folders.values() for file in names.now.values())

    # -- the file system ------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> SimulatedFile:
        """Open a file for reading and writing. Raises OSError."""
        return self._opened(path, create=create, direct=direct)

    def open_to_read(self, path: Path) -> SimulatedFile:
        """Open a file for reading, so that it can be leased. Raises OSError."""
        return self._opened(path, writes=False)

    def _opened(self, path: Path, *, create: bool = False, direct: bool = False, writes: bool = True) -> SimulatedFile:
        path = _absolute(path)
        with self.lock:
            self.look(path)
            if self._faults.kinds:
                self._faults.strike("open", path)
            folder, _, name = str(path).rpartition("/")
            names = self._folders.get(folder)
            if names is None and create and path.parent.is_dir():
                names = self._folders[folder] = Names()  # a folder that existed before the disk
            content = names.now.get(name) if names is not None else None
            if content is None:
                if names is None or not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                content = Content()
                self._change("create", path, Change(name, content))
            return SimulatedFile(self, path, content, direct=direct, writes=writes, is_leasable=not writes)

    def range_reads(self) -> SimulatedReads:
        """Reads of many ranges at once."""
        return SimulatedReads()

    def make_shared(self, name: str, size_bytes: int) -> None:
        """None: no memory is shared, so readers beside a writer read its files."""

    def find_shared(self, pid: int, name: str) -> None:
        """None: no memory is shared."""

    def age_s(self, path: Path) -> float:
        """0: nothing is old, so nothing is swept."""
        return 0.0

    def map(self, path: Path, size_bytes: int, bell_at: int) -> SimulatedPage:
        """Map the first bytes of a file. Raises OSError."""
        path = _absolute(path)
        with self.lock:
            self.look(path)
            content, page = self._named(path), self._pages.get(str(path))
            if content.size < size_bytes:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
            if page is None or page.content is not content:
                page = self._pages[str(path)] = SimulatedPage(content, content.read(0, size_bytes))
            return page

    def list(self, folder: Path) -> list[str]:
        """Names in a folder, files and folders, sorted; none if there is no such folder."""
        folder = _absolute(folder)
        with self.lock:
            self.look(folder)
            names = self._folders.get(str(folder))
            begin = f"{folder}/"
            inner = {path[len(begin) :].partition("/")[0] for path in self._folders if path.startswith(begin)}
            return sorted([*(names.now if names is not None else ()), *inner])

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents durably; an existing one is fine."""
        folder = _absolute(folder)
        with self.lock:
            if str(folder) in self._folders:
                return
            fault = self.begin("make_folder", folder)
            if fault is not None:
                raise fault.make_error(str(folder))
            self._folders[str(folder)] = Names()
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a folder; not durable before `force_folder`."""
        old = _absolute(old)
        with self.lock:
            content = self._named(old)
            self._change("rename", old, Change(new.name, content, old.name))

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name, in any folder; not durable before `force_folder` of that one."""
        with self.lock:
            self._change("link", _absolute(new), Change(new.name, self._named(_absolute(old))))

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder. After a crash it may be back: the model has no more of folders."""
        folder = _absolute(folder)
        with self.lock:
            fault = self.begin("remove", folder)
            if fault is not None:
                raise fault.make_error(str(folder))
            if self.list(folder):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
            with contextlib.suppress(OSError):
                folder.rmdir()

    def remove(self, path: Path) -> None:
        """Remove a file; not durable before `force_folder`."""
        path = _absolute(path)
        with self.lock:
            self._named(path)
            self._change("remove", path, Change(None, None, path.name))

    def free_bytes(self, folder: Path) -> int:
        """The rest of the capacity, wherever the folder is."""
        return sys.maxsize if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())

    def force_folder(self, folder: Path) -> None:
        """Make new, renamed and removed names of a folder durable."""
        folder = _absolute(folder)
        with self.lock:
            fault = self.begin("force_folder", folder)
            if fault is not None:
                raise fault.make_error(str(folder))
            if str(folder) in self._folders:
                self._folders[str(folder)].force()

    def _change(self, kind: Kind, path: Path, change: Change) -> None:
        fault = self.begin(kind, path)
        if fault is not None:
            raise fault.make_error(str(path))
        self._folders[str(path).rpartition("/")[0]].apply(change)

    def _named(self, path: Path) -> Content:
        folder, _, name = str(path).rpartition("/")
        names = self._folders.get(folder)
        if names is None or name not in names.now:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return names.now[name]

    def leads_to(self, path: Path, content: Content) -> bool:
        """True if a path leads to the file with this content."""
        with self.lock:
            folder, _, name = str(path).rpartition("/")
            names = self._folders.get(folder)
            return names is not None and names.now.get(name) is content

    # -- after a cut ----------------------------------------------------------------------------------

    def crash(self, chance: random.Random, manner: Manner | None = None) -> SimulatedDisk:
        """A new disk as a power cut at this moment leaves it, all of it forced. This one is unchanged.

        Args:
            chance: decides what survives; the same seed gives the same disk.
            manner: see `Survivors`; None draws one as well.
        """
        with self.lock:
            folders = sorted(self._folders.items())
            contents = [content for _, names in folders for content in names.contents()]
            unforced = sum(content.unforced_blocks for content in contents if not content.is_forced)
            how = chance.choice(MANNERS) if manner is None else manner
            survivors = Survivors(chance, how, unforced)
            left = {id(content): content.survive(survivors) for content in contents}
            found = SimulatedDisk(capacity_bytes=self.capacity_bytes, block_bytes=self.unit_bytes)
            for folder, names in folders:
                kept = names.survive(survivors)
                found._folders[folder] = Names({name: left[id(content)] for name, content in kept.items()})
            for path, page, content in found._mapped(self._pages):
                found._pages[path] = page.survive(chance, content)
            return found

    def kill(self) -> SimulatedDisk:
        """A new disk as the death of the process leaves this one: all writes are there, forced ones forced."""
        return self.copy()

    def copy(self) -> SimulatedDisk:
        """An independent disk in this state, forced and not."""
        with self.lock:
            twin = SimulatedDisk(capacity_bytes=self.capacity_bytes, block_bytes=self.unit_bytes)
            twin._folders = {folder: names.copy() for folder, names in self._folders.items()}
            for path, page, content in twin._mapped(self._pages):
                twin._pages[path] = page.copy(content)
            return twin

    def _mapped(self, pages: dict[str, SimulatedPage]) -> Iterator[tuple[str, SimulatedPage, Content]]:
        """Another disk's pages whose file this disk has as well, with the file."""
        for path, page in pages.items():
            folder, _, name = path.rpartition("/")
            names = self._folders.get(folder)
            if names is not None and name in names.now:
                yield path, page, names.now[name]

    def spoil(self, path: Path, position: int) -> None:
        """Make the block at a position of a file one that the device cannot read."""
        with self.lock:
            self._named(path).spoil(position)

    def cut(self, path: Path, size: int) -> bool:
        """Another program cuts a file, as written and as forced; False if it has to wait for a lease."""
        with self.lock:
            return self._named(path).cut(size)

    def is_forced(self) -> bool:
        """True if a power cut now would take nothing."""
        with self.lock:
            return all([names.is_forced for names in self._folders.values()])

    def is_in_doubt(self) -> bool:
        """True if a failed force left bytes that are read, and that no later force brings to the device."""
        with self.lock:
            return any([file.doubtful for names in self._folders.values() for file in names.now.values()])

    def folder_fingerprint(self, folder: Path) -> int | None:
        """`fingerprint` of the files of one folder; None while a power cut would take something of them."""
        with self.lock:
            names = self._folders[str(folder)]
            return names.fingerprint() if names.is_forced else None

    def copy_folder(self, folder: Path, to: SimulatedDisk) -> None:
        """Replace another disk's files of a folder by this disk's."""
        with self.lock:
            to._folders[str(folder)] = self._folders[str(folder)].copy()

    def files(self) -> dict[Path, bytes]:
        """Every file with its bytes as written."""
        with self.lock:
            return {
                Path(folder, name): content.read(0, content.size)
                for folder, names in sorted(self._folders.items())
                for name, content in sorted(names.now.items())
            }

    def bytes_of(self, path: Path) -> bytes:
        """A file's bytes as written."""
        content = self._named(path)
        return content.read(0, content.size)

    def sizes(self) -> dict[Path, int]:
        """Every file with its length as written, in bytes; by folder and name."""
        with self.lock:
            return {
                Path(folder, name): content.size
                for folder, names in sorted(self._folders.items())
                for name, content in sorted(names.now.items())
            }

    def fingerprint_of(self, path: Path) -> int:
        """A number that is equal for files with the same written bytes; within one process only."""
        return self._named(path).fingerprint()

    def fingerprint(self) -> int:
        """A number that is equal for disks with the same written files; within one process only."""
        with self.lock:
            return hash(frozenset([(folder, names.fingerprint()) for folder, names in self._folders.items()]))


def _absolute(path: Path) -> Path:
    """A relative path, resolved in the current working directory."""
    text = str(path)
    return path if text.startswith("/") else Path(os.path.abspath(text))
