"""Planted bugs of the POSIX twin: forces that are less than they say, and calls of Linux's on another system."""

from __future__ import annotations

from .plant import Bug

TESTS = "tests/store/test_portable.py"
HIDDEN = (f"{TESTS}::test_a_store_works_without_any_name_of_linux_and_loses_nothing_by_kills",)
FAILS = (f"{TESTS}::test_a_full_sync_that_fails_is_the_error_and_nothing_is_asked_again",)

PORTABLE: dict[str, Bug] = {
    "portable: a full sync that fails is tried again as a weaker one": Bug(
        "stratalog/portable.py",
        "            if error.errno not in NOT_THERE:\n",
        "            if error.errno == 0:\n",
        FAILS,
    ),
    "portable: a file system without full sync cannot be written to": Bug(
        "stratalog/portable.py",
        "errno.ENOSYS, errno.ENOTTY})",
        "errno.ENOSYS})",
        (f"{TESTS}::test_a_file_system_without_full_sync_is_forced_as_it_can_be",),
    ),
    "portable: a force leaves bytes in the memory of a Mac's disk": Bug(
        "stratalog/portable.py",
        "    if POSIX_ALONE and FULL_SYNC is not None:\n",
        "    if not POSIX_ALONE:\n",
        (f"{TESTS}::test_every_force_of_a_mac_reaches_the_medium",),
    ),
    "portable: a write that forces is only a write": Bug(
        "store/device/posix_file.py",
        "        if force:\n            self.force()\n",
        "",
        (f"{TESTS}::test_every_force_of_a_mac_reaches_the_medium",),
    ),
    "portable: a short write is taken for a whole one": Bug(
        "store/device/posix_file.py",
        "            rest, position = rest[count:], position + count\n",
        "            rest, position = rest[len(rest) :], position + count\n",
        (f"{TESTS}::test_a_short_write_goes_on_and_a_device_that_takes_nothing_is_an_error",),
    ),
    "portable: an open file is opened again by /proc": Bug(
        "store/device/posix_file.py",
        "        return owned(os.dup, self._of)\n",
        '        return open_descriptor(f"/proc/self/fd/{self._of}", flags)\n',
        HIDDEN,
    ),
    "portable: Linux's number of the futex is used on another system": Bug(
        "store/device/mapped.py",
        "_NUMBER = None if POSIX_ALONE else _NUMBERS.get(platform.machine())",
        "_NUMBER = _NUMBERS.get(platform.machine(), 98)",
        HIDDEN,
    ),
    "portable: Linux's advice about pages is given on another system": Bug(
        "store/device/prefault.py",
        "None if POSIX_ALONE else ctypes.CDLL(None)",
        "ctypes.CDLL(None)",
        HIDDEN,
    ),
    "portable: an index on disk is forced by a call that a Mac lacks": Bug(
        "index/trackers/files.py",
        "        force(self._writers[name])\n",
        "        os.fdatasync(self._writers[name])\n",
        HIDDEN,
    ),
    "portable: the start of a machine that does not tell has no bytes": Bug(
        "store/device/mapped.py",
        '.ljust(BOOT_ID_BYTES, b"\\0")',
        "",
        (f"{TESTS}::test_the_start_of_a_mac_is_its_session_s_name_and_zeros_where_there_is_none",),
    ),
    "portable: a close waits until a sleeper looks again by itself": Bug(
        "store/device/mapped.py",
        "        self._woken.set()\n",
        "",
        (f"{TESTS}::test_a_close_ends_a_sleep_where_nobody_can_be_woken_by_the_system",),
    ),
    "portable: the owner of a descriptor warns when it is dropped": Bug(
        "store/device/descriptor.py",
        "    __del__ = FileIO.close\n",
        "    __slots__ = ()\n",
        (f"{TESTS}::test_a_descriptor_s_owner_closes_it_once_without_a_warning",),
    ),
    "portable: a device that nobody knows is taken for Linux's": Bug(
        "stratalog/portable.py",
        "    if CHOSEN not in (LINUX, POSIX):\n",
        "    if not CHOSEN:\n",
        (f"{TESTS}::test_a_wrong_choice_is_an_error_of_the_opening",),
    ),
}
