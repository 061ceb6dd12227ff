"""Bugs of small blocks: promises that they would cost."""

from __future__ import annotations

from .plant import Bug

BLOCKS = "tests/store/test_small_blocks.py"
DEVICES = ("tests/store/test_device_blocks.py",)
RULE = (f"{BLOCKS}::test_no_block_of_the_device_is_written_again_once_it_was_forced",)
REPAIRED = (f"{BLOCKS}::test_a_repair_makes_a_lost_header_again_with_the_blocks_that_the_frames_show",)

SMALL_BLOCKS: dict[str, Bug] = {
    "small blocks: a page that was forced is written again": Bug(
        "store/log/lane_machine.py", " if self._lazy and not barrier else self.forced_block_bytes", "", RULE,
    ),
    "small blocks: a flush of what is written already leaves its page to later writes": Bug(
        "store/log/lane_machine.py", "align_up(self.tail, block) > self.issued:", "self.tail > self.issued:", RULE,
    ),
    "small blocks: a segment ends inside of a page": Bug(
        "store/log/written_lane.py", "align_up(self.tail, self.forced_block_bytes), force=True)",
        "align_up(self.tail, self.block_bytes), force=True)", (BLOCKS,),
    ),
    "small blocks: the blocks of the device do not count": Bug(
        "store/log/written_lane.py", "max(self.block_bytes, self._device_block_bytes)", "self.block_bytes",
        (f"{BLOCKS}::test_a_store_goes_on_from_device_to_device",),
    ),
    "small blocks: a resumed segment goes on in the block of its last frame": Bug(
        "store/log/adoption.py", "align_up(data_end)\n", "align_up(data_end, 512)\n",
        (f"{BLOCKS}::test_a_store_goes_on_from_device_to_device",),
    ),
    "small blocks: a reader looks for frames at whole blocks alone": Bug(
        "store/segment/scanner.py", "range(align_up(end + 1, self.block_bytes), align_up(end) + 1, self.block_bytes)",
        "range(align_up(end + 1), align_up(end) + 1, 4096)", (BLOCKS,),
    ),
    "small blocks: a reader takes a lost message for padding": Bug(
        "store/segment/scanner.py", "        return align_up(self.position, self.block_bytes)\n",
        "        return align_up(self.position)\n",
        (f"{BLOCKS}::test_a_reader_beside_a_writer_tells_of_a_lone_message_that_is_lost_at_the_end",),
    ),
    "small blocks: a record's page counts as frames": Bug(
        "store/live/tail.py", "scanner.position if is_all else record.data_end", "record.data_end",
        (f"{BLOCKS}::test_a_reader_takes_what_fills_the_page_after_a_flush_for_padding",),
    ),
    "small blocks: a write does not wait for zeros that are on their way to its place": Bug(
        "store/log/flusher.py", "while self.lane.under_way.is_filling:", "while False:",
        (f"{BLOCKS}::test_a_write_begins_after_one_that_fills_its_page_has_ended",),
    ),
    "small blocks: the page cache is trusted with them": Bug(
        "store/api/store.py", "            return BLOCK_BYTES\n        if direct and",
        "            direct = True\n        if direct and",
        (f"{BLOCKS}::test_blocks_are_of_four_kib_without_direct_writes_whatever_the_device_says", *DEVICES),
    ),
    "small blocks: a header says nothing of them": Bug(
        "store/format/layout.py", "SEGMENT_MAGIC, FORMAT_VERSION, self.lane, self.fine, self.store_id,",
        "SEGMENT_MAGIC, FORMAT_VERSION, self.lane, 0, self.store_id,", (BLOCKS, "tests/store/test_format.py"),
    ),
    "small blocks: an unknown size is taken": Bug(
        "store/format/layout.py", "header if header is not None and header.fine in (0, 1) else None", "header",
        (f"{BLOCKS}::test_a_header_of_unknown_blocks_is_none",),
    ),
    "small blocks: a repair forgets them": Bug(
        "store/recovery/lane_files.py", "is_fine(frames_in(self._disk, path, self._lane, sequence))", "False", REPAIRED,
    ),
    "small blocks: a repair sees them everywhere": Bug(
        "store/segment/begun.py", "if begin != before and begin % BLOCK_BYTES and begin % FINE_BLOCK_BYTES == 0:",
        "if begin != before:", REPAIRED,
    ),
    "small blocks: a device with larger ones is trusted": Bug(
        "store/device/blocks.py", "sizes == [FINE_BLOCK_BYTES] * 2", "sizes[0] == FINE_BLOCK_BYTES", DEVICES,
    ),
    "small blocks: hearsay is trusted": Bug(
        "store/device/blocks.py", " and not any(part in f\"{device}/\" for part in _HEARSAY)", "", DEVICES,
    ),
    "small blocks: a virtual machine is trusted": Bug(
        "store/device/blocks.py", "return bool(flags) and not any(\"hypervisor\" in words for words in flags)",
        "return True", DEVICES,
    ),
    "small blocks: a partition has no device": Bug(
        "store/device/blocks.py", "            device = device.parent\n", "            pass\n", DEVICES,
    ),
    "small blocks: the simulated disk harms nothing beside a write": Bug(
        "store/testing/content.py", "                self.write(at, bytes(byte ^ 0xFF for byte in whole))\n", "",
        (f"{BLOCKS}::test_what_lies_beside_a_small_write_is_in_danger_on_a_device_of_larger_blocks",),
    ),
}  # fmt: skip
