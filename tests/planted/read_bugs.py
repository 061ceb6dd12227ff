"""Bugs of reading."""

from __future__ import annotations

from .plant import Bug

SEGMENTS = ("tests/store/test_sealed_segments.py",)

READING: dict[str, Bug] = {
    "times: messages of several frames get the time of the first one": Bug(
        "store/read/frame_times.py", " or (frame < len(positions) and positions[frame] < last)", "",
        ("tests/store/test_few.py", "tests/store/test_lane_places.py"),
    ),
    "times: optional columns are overlooked where one frame has all": Bug(
        "store/read/frame_times.py", "if not frame or flags[frame - 1] & HAS_EXTRAS or (frame",
        "if not frame or (frame", ("tests/store/test_few.py", "tests/store/test_lane_places.py"),
    ),
    "sealed segments: a removed one is kept by a part": Bug(
        "store/segment/sealed_segments.py", "(*(None,) * gone, *first[gone:])", "first", SEGMENTS,
    ),
    "sealed segments: one more is gone at the end of a part": Bug(
        "store/segment/sealed_segments.py", "divmod(self._gone + count, IN_PART)", "divmod(count, IN_PART)", SEGMENTS,
    ),
    "sealed segments: the gone ones are counted": Bug(
        "store/segment/sealed_segments.py", "+ len(parts[-1]) - gone", "+ len(parts[-1])", SEGMENTS,
    ),
    "sealed segments: an index before the first one wraps": Bug(
        "store/segment/sealed_segments.py", "            if at < 0:\n                raise IndexError",
        "            if False:\n                raise IndexError", SEGMENTS,
    ),
    "sealed segments: a part takes more than its places": Bug(
        "store/segment/sealed_segments.py", "*(last[at : at + IN_PART] for at in range(0, len(last), IN_PART))",
        "last", SEGMENTS,
    ),
    "sealed segments: a seal copies all": Bug(
        "store/segment/sealed_segments.py", "(*parts, *(last", "(*(tuple([*one]) for one in parts), *(last", SEGMENTS,
    ),
    "reading: a mapped message is believed without its checksum": Bug(
        "store/device/leased.py", "if checksum64(data) & LOW_32 != flat[place + 2]:", "if False:",
        ("tests/store/test_leased.py::test_copying_ends_before_a_message_with_wrong_bytes",),
    ),
    "reading: pages are touched that are not in memory": Bug(
        "store/device/leased.py", "                if not self._is_resident(window):", "                if False:",
        ("tests/store/test_leased.py::test_pages_that_are_not_in_memory_are_not_touched",),
    ),
    "reading: nobody looks whether somebody waits for the lease": Bug(
        "store/device/lease.py", "F_GETLEASE) == fcntl.F_RDLCK", "F_GETLEASE) >= 0",
        ("tests/store/test_leased.py::test_file_is_cut_only_when_nothing_is_copied_any_more",),
    ),
    "reading: a forked child shares its parent's lease": Bug(
        "store/api/running.py", "                sealed.after_fork()", "                pass",
        ("tests/store/test_leased.py::test_forked_child_holds_no_lease_of_its_parent",),
    ),
    "reading: a batch in columns is believed without its checksums": Bug(
        "store/read/bulk.py", "        if not _are_right(sums, rows):", "        if False:",
        ("tests/store/test_bulk.py::test_damaged_message_is_never_returned",),
    ),
    "reading: a batch in columns is believed although the ring went on": Bug(
        "store/read/bulk.py", "    return base + begins[0] >= ring.low  #", "    return True  #",
        ("tests/store/test_bulk.py::test_message_that_is_overtaken_while_it_is_read_comes_from_the_file",),
    ),
    "reading: a few recent messages are believed without their checksums": Bug(
        "store/read/recent.py", "        if [whole & LOW_32", "        if False and [whole & LOW_32",
        ("tests/store/test_recent.py::test_wrong_bytes_in_the_ring_are_damage",),
    ),
    "reading: many recent messages are believed without their checksums": Bug(
        "store/read/bulk.py", "if oldest < ring.low or not _are_right([*map(checksum64, datas)], rows):",
        "if oldest < ring.low:",
        ("tests/store/test_recent.py::test_wrong_bytes_in_the_ring_are_damage",),
    ),
    "other processes: the mirror is used before its memory is there": Bug(
        "store/live/mirror.py", "self.is_read = is_wanted and self._is_provided", "self.is_read = is_wanted",
        ("tests/store/test_mirror_memory.py::test_where_there_is_no_room_for_it_readers_read_the_files",),
    ),
    "other processes: frames are copied whole and believed without their checksums": Bug(
        "store/live/whole_frames.py", "HAS_PAYLOAD_CHECKSUM or checksum64(payload) != header.payload_checksum:",
        "HAS_PAYLOAD_CHECKSUM:",
        ("tests/store/test_whole_frames.py::test_wrong_bytes_of_the_mirror_are_in_no_copy",),
    ),
    "other processes: a buffer is filled from its beginning while somebody sees it": Bug(
        "store/live/whole_frames.py", "self._begin = self._used\n", "self._begin = self._used = 0\n",
        ("tests/store/test_whole_frames.py::test_batch_stays_as_it_is_and_its_buffer_is_used_again_later",),
    ),
    "other processes: what lies between two frames is copied with them": Bug(
        "store/live/whole_frames.py", "heads[0].header.chain == self._chain and ", "",
        ("tests/store/test_whole_frames.py::test_what_lies_between_two_frames_is_in_no_copy",),
    ),
    "other processes: a look goes on from half of a frame behind an interrupt": Bug(
        "store/live/lane.py", "shown += self._begin_anew()", "shown += []",
        ("tests/store/test_read_only_interrupts.py::test_interrupted_look_at_new_frames_loses_and_repeats_nothing",),
    ),
    "reading: heads become a table without a look at their streams": Bug(
        "store/segment/index.py", "if (rows[entries, 0] != numbers).any() or (rows", "if (rows",
        ("tests/store/test_by_parts.py::test_heads_that_do_not_agree_with_the_footer_become_no_table",),
    ),
    "reader: a message is given without a look at its checksum": Bug(
        "store/read/log_bytes.py", "        if not are_right(datas, part):", "        if False:",
        ("tests/store/test_recovery.py::test_damage_found_while_reading_is_reported", "tests/store/test_reader.py"),
    ),
    "reader: max_bytes gives nothing where one message is larger": Bug(
        "store/segment/part.py", "max_bytes), 0 if index else 1)", "max_bytes), 0)",
        ("tests/store/test_reader.py::test_max_bytes_cuts_between_messages_of_all_segments",),
    ),
    "reader: a message's own time is another frame's": Bug(
        "store/segment/open_table.py", "side=\"right\") - 1", "side=\"left\") - 1", ("tests/store/test_table.py",),
    ),
    "scan: messages that are not durable are given": Bug(
        "store/read/scan.py", "[(one, one.table.visible) for", "[(one, one.table.entries) for",
        ("tests/store/test_not_durable.py",),
    ),
    "scan: a filter's end is passed over": Bug(
        "store/read/scan.py", "            unwanted |= offsets >= self.highs.take(numbers, mode=\"clip\")\n", "",
        ("tests/store/test_scan_wanted.py",),
    ),
    "scan: segments without what is wanted are read": Bug(
        "store/read/scan.py", "isinstance(source, OpenSegment) or self._wanted.is_in(source)", "True",
        ("tests/store/test_scan_wanted.py::test_segments_without_what_is_wanted_are_not_read",),
    ),
    "scan: lost messages shift the offsets of the others": Bug(
        "store/read/scan.py", "offsets[footer.entries[kept]] = values[kept]",
        "offsets[footer.entries[kept]] = values[: int(kept.sum())]", ("tests/store/test_repair.py",),
    ),
    "waiting: a read that is watched takes no last look": Bug(
        "store/read/waiting.py", "purgatory.try_complete_else_watch(read, (read.name,))",
        "purgatory._watch(read, (read.name,)) or not purgatory",
        ("tests/store/test_waiting.py::test_message_that_comes_between_the_look_and_the_sleep_is_not_missed",),
        hangs=True,
    ),
    "waiting: bytes that came are counted twice": Bug(
        "store/read/waiting.py",
        "size_bytes=missing.size_bytes - came,",
        "size_bytes=missing.size_bytes - 2 * came,",
        ("tests/store/test_waiting.py::test_read_waits_until_there_are_enough_bytes",), hangs=True,
    ),
    "waiting: one queue of a batch is told, the others are not": Bug(
        "store/read/waiting.py", "    for name in names:\n", "    for name in names[:1]:\n",
        ("tests/store/test_waiting.py::test_readers_of_all_queues_of_a_batch_are_woken",), hangs=True,
    ),
    "reading: a read past the page cache that came short is believed": Bug(
        "store/device/direct_reads.py",
        "is_whole = is_whole and size == requests[index][3]",
        "is_whole = is_whole and size > 0",
        ("tests/store/test_direct_reads.py::test_nothing_is_given_of_what_lies_behind_the_end_of_a_file",),
    ),
    "reading: a message past the page cache is believed without its checksum": Bug(
        "store/read/log_bytes.py", "if datas is None or not are_right(datas, parts[number]):", "if datas is None:",
        ("tests/store/test_direct_reads.py::test_damage_that_is_read_past_the_page_cache_is_told",),
    ),
    "reading: messages that the ring has lost are believed": Bug(
        "store/read/log_bytes.py", "found) or base + flat[3 * entries[0]] < ring.low:", "found):",
        ("tests/store/test_direct_reads.py::test_what_the_ring_loses_during_a_copy_comes_from_the_device",),
    ),
    "ring: what is behind the end is given another place before it counts as lost": Bug(
        "store/device/ring.py",
        "        self.low = max(self.low, at)  # what is left of the lap before has no place by the new shape\n"
        "        self.shape = at, size, self._map\n",
        "        self.shape = at, size, self._map\n        self.low = max(self.low, at)\n",
        ("tests/store/test_ring.py::test_what_growth_drops_counts_as_overtaken_before_it_has_another_place",),
    ),
    "ring: it grows beyond the pages that were provided": Bug(
        "store/device/ring.py", "size, at = min(self.warm, self.limit_bytes),", "size, at = self.limit_bytes,",
        ("tests/store/test_ring.py::test_a_ring_goes_on_into_provided_pages_where_its_lap_ends",),
    ),
    "reading: messages that a mapping has are cut off the parts of who asks": Bug(
        "store/read/log_bytes.py", "[*cut_parts(ring, parts)]", "cut_parts(ring, parts)",
        ("tests/store/test_by_parts.py::test_messages_of_which_a_mapping_has_the_first_ones_alone_come_whole",),
    ),
    "reading: messages that the ring has lost are given twice": Bug(
        "store/read/log_bytes.py",
        "                del found[index]\n            return False",
        "                pass\n            return False",
        ("tests/store/test_direct_reads.py::test_what_the_ring_loses_during_a_copy_comes_from_the_device",),
    ),
    "reading: windows that have one message of a call count for all": Bug(
        "store/segment/windows.py",
        "                    return False\n        except IndexError",
        "                    pass\n        except IndexError",
        ("tests/store/test_direct_reads.py::test_windows_have_messages_only_where_the_kernel_was_asked_for_all_of_them",),
    ),
    "reading: a message of the table of places is believed without its checksum": Bug(
        "store/read/lane_places.py",
        "            if checksum64(data) & LOW_32 != checksum:\n"
        "                del found[index]\n                break\n            index += 1",
        "            index += 1",
        ("tests/store/test_named_rows.py::test_each_loop_compares_the_checksums",),
    ),
    "reading: a message of a kept window is believed without its checksum": Bug(
        "store/read/lane_places.py",
        "                    if checksum64(data) & LOW_32 != checksum:\n"
        "                        del found[index]\n                        break\n"
        "                    index += 1",
        "                    index += 1",
        ("tests/store/test_lane_places.py::test_what_the_ring_has_lost_of_the_open_segment_is_kept_once_it_is_read_again",),
    ),
    "reading: messages of the table of places that the ring has lost are believed": Bug(
        "store/read/lane_places.py", "        if ring.low > low and", "        if False and",
        ("tests/store/test_lane_places.py::test_what_the_ring_loses_during_a_copy_comes_from_the_device",),
    ),
    "reading: messages that the ring has lost are believed behind others of the table of places": Bug(
        "store/read/lane_places.py", "        if recent and ring.low > low and", "        if False and",
        ("tests/store/test_named_rows.py::test_what_the_ring_loses_behind_other_messages_comes_from_the_device",),
    ),
    "reading: a trim leaves the names of a table of places as they are": Bug(
        "store/read/lane_places.py", "        if names.shown != lane.lows.shown:", "        if False:",
        ("tests/store/test_named_rows.py::test_a_trimmed_message_is_not_given_and_the_others_get_their_names_again",),
    ),
    "reading: a trim while the names of a table of places are made is not seen": Bug(
        "store/read/named_rows.py", "        return cls(shown, layout.topics,",
        "        return cls(lane.lows.shown, layout.topics,",
        ("tests/store/test_named_rows.py::test_a_trim_while_names_are_made_is_seen",),
    ),
    "reading: a queue id below zero is one of the last ones": Bug(
        "store/read/lane_places.py", "names is None or queue_id < 0 or", "names is None or",
        ("tests/store/test_named_rows.py::test_numbers_that_name_no_queue_find_none",),
    ),
    "reading: a window is kept without the end of its last message": Bug(
        "store/read/lane_places.py", "segment.read_one(begin, KEPT_BYTES)", "segment.read_one(begin, COPY_BYTES)",
        ("tests/store/test_named_rows.py::test_a_message_across_two_windows_is_kept_with_the_first",),
    ),
    "reading: the table of places is asked for segments that are gone": Bug(
        "store/read/lane_places.py", "if there != mine:", "if False:",
        ("tests/store/test_lane_places.py::test_a_removed_segment_is_read_no_more_although_the_ring_has_it",),
    ),
    "reading: the table of places keeps the files of removed segments": Bug(
        "store/read/caches.py", "        self.held.drop_places(lane.index)", "        pass",
        ("tests/store/test_lane_places.py::test_a_removed_segment_is_not_kept_by_the_table",), hangs=True,
    ),
    "reading: the table of places has offsets behind a gap": Bug(
        "store/read/making_places.py", "is_cut[:known] |= has & begun & (", "is_cut[:known] |= has & ~begun & (",
        ("tests/store/test_lane_places.py::test_a_gap_in_the_offsets_leaves_the_stream_to_the_long_way",),
    ),
    "reading: a frame without messages keeps heads from becoming a table": Bug(
        "store/segment/index.py", "(begins[1:] > begins[:-1]).sum()", "(begins[1:] >= begins[:-1]).sum()",
        ("tests/store/test_by_parts.py::test_heads_become_a_table_although_some_frames_have_no_messages",),
    ),
}  # fmt: skip
