"""Planted bugs of the device: mappings without a lease, bad sectors that are believed, disks that change things."""

from __future__ import annotations

from .plant import Bug

ZEROS = "tests/store/test_zeros.py"

DEVICE: dict[str, Bug] = {
    "device: a footer is mapped without a lease": Bug(
        "store/segment/index.py",
        "        return segment.read_one(position, size)\n",
        "        import mmap\n\n        whole = mmap.mmap(segment.data.fileno(), 0, prot=mmap.PROT_READ)\n"
        "        return memoryview(whole)[position : position + size]  # type: ignore[return-value]\n",
        ("tests/store/test_cut_files.py::test_a_sealed_segment_that_is_cut_is_an_error_and_no_signal",
         "tests/store/test_device_rules.py::test_files_are_mapped_where_something_guards_the_mapping_and_nowhere_else"),
    ),
    "device: a bad sector in a footer is believed": Bug(
        "store/segment/index.py",
        "        return segment.read_one(position, size)\n",
        "        try:\n            return segment.read_one(position, size)\n        except OSError:\n"
        "            return bytes(size)\n",
        ("tests/store/test_cut_files.py::test_a_bad_sector_in_a_footer_is_an_error_and_not_believed",),
    ),
    "device: a column of a footer that became shorter is believed": Bug(
        "store/format/stored_column.py", "        if len(data) != size:", "        if False:",
        ("tests/store/test_cut_files.py::test_a_column_of_a_file_that_became_shorter_is_an_error",),
    ),
    "device: pages that the device cannot read are looked at in a mapping": Bug(
        "store/device/leased.py", "                if not self._is_resident(window):", "                if False:",
        ("tests/simulation/test_served.py::test_a_leased_map_does_not_look_at_a_page_that_cannot_be_read",),
    ),
    "device: a lease is given back while its mapping is looked at": Bug(
        "store/device/leased.py", "            self._forget()\n            self._lease.give_back()",
        "            self._lease.give_back()",
        ("tests/simulation/test_served.py::test_a_leased_map_does_not_look_at_a_page_that_cannot_be_read",),
    ),
    "device: a mapping holds a descriptor of its own": Bug(
        "store/device/lease.py", "mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,",
        "mmap.mmap(descriptor, size, mmap.MAP_SHARED,",
        ("tests/store/test_leased.py::test_a_mapped_segment_holds_one_descriptor",),
    ),
    "device: nobody is told that a program waits to cut a file": Bug(
        "store/device/leased.py", "        if self._lease.is_whole():", "        if True:",
        ("tests/simulation/test_served.py::test_a_store_serves_right_bytes_or_errors_while_its_files_are_harmed",),
    ),
    "device: windows are taken again behind their check": Bug(
        "store/segment/windows.py", "        for begin, length in zip(starts, lengths, strict=False):",
        "        asked = self._asked\n        for begin, length in zip(starts, lengths, strict=False):",
        ("tests/store/test_direct_reads.py::test_pages_that_are_forgotten_at_any_line_of_a_reader_harm_no_read",),
    ),
    "device: a disk to look at makes folders": Bug(
        "store/device/looking.py", "    def make_folder(self, folder: Path) -> None:\n        pass\n\n", "",
        ("tests/store/test_device_rules.py::test_a_disk_to_look_at_changes_nothing",),
    ),
    "device: an open table leaves out the objects of its rows": Bug(
        "store/segment/postings.py", "sum([ROW_OBJECTS + getsizeof(entries)", "sum([4 * len(entries)",
        ("tests/store/test_table.py::test_a_table_says_what_the_rows_of_many_streams_cost",),
    ),
    "device: a file is asked whether it can be read into": Bug(
        "store/segment/scanner.py", "count = self.file.read_into([buffer",
        'count = getattr(self.file, "read_into")([buffer',
        ("tests/store/test_device_rules.py::test_no_code_looks_whether_a_file_or_disk_has_an_ability",),
    ),
    "device: a ring gives a range that it cannot have": Bug(
        "store/device/ring.py", "if not 0 <= high - low <= self.size_bytes:", "if False:",
        ("tests/store/test_ring.py::test_a_range_that_a_ring_cannot_have_is_refused",),
    ),
    "device: a module is loaded when the first segment is sealed": Bug(
        "store/format/records.py", "import numpy.ma  #", "#",
        ("tests/store/test_imports.py::test_nothing_is_loaded_once_the_store_is",),
    ),
    "device: the log writes behind its zeros and does not say so": Bug(
        "store/segment/writer.py", "        if zeros is not None and end > zeros.ready:", "        if False:",
        (f"{ZEROS}::test_a_log_that_outruns_its_zeros_is_whole_and_zeros_come_after_it",),
    ),
    "device: a claim does not wait for the zeros that are being written": Bug(
        "store/segment/zeros.py",
        "        with self._stepping:\n            self.ready = max(self.ready, align_up(end))\n",
        "        self.ready = max(self.ready, align_up(end))\n",
        (f"{ZEROS}::test_a_claim_and_a_stop_wait_for_the_step_that_is_under_way",),
    ),
    "device: a log that waits for a step does not say so": Bug(
        "store/segment/zeros.py",
        "        self.is_outrun = True  # first: the one who steps would take the lock again and again\n"
        "        with self._stepping:\n",
        "        with self._stepping:\n            self.is_outrun = True\n",
        (f"{ZEROS}::test_a_claim_and_a_stop_wait_for_the_step_that_is_under_way",),
    ),
    "device: zeros go on in a segment that gets its footer": Bug(
        "store/segment/zeros.py", '        """Write no more zeros: the file is cut, or others write to it."""\n'
        "        with self._stepping:\n            self._end = 0\n",
        '        """Write no more zeros: the file is cut, or others write to it."""\n',
        (f"{ZEROS}::test_no_zeros_are_written_into_a_segment_that_has_its_footer",),
    ),
    "device: zeros begin in the log of a sparse copy": Bug(
        "store/log/adoption.py", "find_zeros(align_up(data_end))", "find_zeros()",
        (f"{ZEROS}::test_a_sparse_copy_of_a_closed_store_goes_on_behind_its_log",),
    ),
    "device: what was not written is left without space": Bug(
        "store/segment/zeros.py", "if ready < end and log.reserve(end) and", "if ready < end and",
        (f"{ZEROS}::test_a_sparse_copy_of_a_closed_store_goes_on_behind_its_log",
         f"{ZEROS}::test_a_file_that_cannot_be_reserved_or_is_in_the_page_cache_is_pre_written_as_a_whole"),
    ),
    "device: the log and its zeros share an open file": Bug(
        "store/segment/zeros.py", "return cls(log, again(), ready, end)", "return cls(log, log, ready, end)",
        (f"{ZEROS}::test_a_step_of_zeros_does_not_hear_in_the_logs_place_that_a_write_was_lost",),
    ),
    "device: zeros go past the page cache when the log goes through it": Bug(
        "store/segment/zeros.py", "not (self._file.direct and self._log.direct)", "not self._file.direct",
        (f"{ZEROS}::test_zeros_end_when_the_log_or_they_leave_o_direct",),
    ),
    "device: zeros are written although the log outruns them": Bug(
        "store/log/ahead.py", "0 if self._rest(zeros, tail) else zeros.step()", "zeros.step()",
        (f"{ZEROS}::test_zeros_rest_while_the_log_outruns_them",),
    ),
    "device: zeros that a slow log has come to the end of rest for ever": Bug(
        "store/log/ahead.py", "zeros.is_outrun and tail - self._rests[1] > FAST_BYTES", "zeros.is_outrun",
        (f"{ZEROS}::test_zeros_come_again_before_a_slow_log_that_outran_them",),
    ),
    "device: zeros come again before a log that is as fast as ever": Bug(
        "store/log/ahead.py", "zeros.is_outrun and tail - self._rests[1] > FAST_BYTES", "False",
        (f"{ZEROS}::test_zeros_rest_for_as_long_as_the_log_is_fast",),
    ),
    "device: a search for proof of damage ends at the first hole": Bug(
        "store/segment/scanner.py", "begin = min(end, self.reader.file.data_from(begin))",
        "begin = end if self.reader.file.data_from(begin) > begin else begin",
        (f"{ZEROS}::test_a_hole_in_the_log_is_damage_where_a_frame_behind_it_says_so",),
    ),
}  # fmt: skip
