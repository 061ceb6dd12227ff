"""Bugs of the log's core: forces, answers, what a damaged seal record says, and sealing that falls behind."""

from __future__ import annotations

from .plant import Bug

FORCES = ("tests/store/test_forces.py",)
HOOKS = ("tests/store/test_hooks.py",)
ENDED = ("tests/store/test_damaged_seals.py",)
CUT = ("tests/store/test_cut_segments.py",)
PRESSED = ("tests/store/test_back_pressure.py",)

CORE: dict[str, Bug] = {
    "core: a force that covers earlier writes does not wait for them": Bug(
        "store/log/write.py",
        "        self.took_ns = perf_counter_ns() - began\n\n    def settle(self) -> None:\n",
        "        self.settle()\n        self.earlier = self.looks = False\n\n"
        "    def settle(self) -> None:\n",
        FORCES,
    ),
    "core: what was put off is never forced": Bug(
        "store/log/writes.py", "            write.settle()\n", "            pass\n", FORCES,
    ),
    "core: the end of a write that was not forced answers a flush": Bug(
        "store/log/writes.py", "(durable if frame.ends else min(durable, self.forced))", "durable", FORCES,
    ),
    "core: a hook of the live page that raises ends the write before it is answered": Bug(
        "store/log/writes.py", "            except Exception as error:  # what is durable is durable",
        "            except ZeroDivisionError as error:  # what is durable is durable", HOOKS,
    ),
    "core: requests are not answered when a step after them raises": Bug(
        "store/log/writes.py",
        "                    self._tell_forced()\n"
        "        finally:  # whatever has raised: nobody else knows these requests any more\n"
        "            if answered:\n                answer_all(answered)\n",
        "                    self._tell_forced()\n        except ZeroDivisionError:\n            raise\n"
        "        if answered:\n            answer_all(answered)\n",
        (f"{HOOKS[0]}::test_hook_of_a_step_that_raises_leaves_nobody_asleep",),
    ),
    "core: an answer that raises keeps the others from theirs": Bug(
        "store/log/request.py", "        except BaseException as raised:\n            failed = failed or raised\n",
        "        except BaseException:\n            raise\n",
        (f"{HOOKS[0]}::test_answer_that_raises_keeps_no_other_from_its_own",),
    ),
    "core: a trim that cannot be shown is never answered": Bug(
        "store/log/trims.py",
        "        finally:  # the record is durable, whatever becomes of the readers here\n"
        "            super().answer(error)\n",
        "        except ZeroDivisionError:\n            return\n        super().answer(error)\n",
        (f"{HOOKS[0]}::test_trim_that_cannot_be_shown_keeps_no_other_request_from_its_answer",),
    ),
    "core: a seal record that is damaged says nothing": Bug(
        "store/segment/evidence.py", "    return block if any(block) and", "    return block if False and", ENDED,
    ),
    "core: frames after a damaged seal record's last one end the log": Bug(
        "store/segment/evidence.py", "    if is_flipped(trace, scanner.sequence):\n        return False\n",
        "    return True\n", ENDED,
    ),
    "core: a segment that is cut before its first frame is an open one": Bug(
        "store/recovery/used_file.py", "        return self.record is not None or bool(self.trace) or self.is_cut\n",
        "        return self.record is not None or bool(self.trace)\n", CUT,
    ),
    "core: a segment that is cut to nothing is a spare": Bug(
        "store/recovery/lane_files.py", "for file in unused if was_closed or not file.is_cut]",
        "for file in unused]", CUT,
    ),
    "core: a file that is cut says that a round's part never was": Bug(
        "store/segment/round_parts.py", "if file.is_foreign or file.is_cut:", "if file.is_foreign:", CUT,
    ),
    "core: a record is all that there was of a segment": Bug(
        "store/segment/evidence.py", "    if at == DATA_START:  # each", "    if False:  # each", CUT,
    ),
    "core: a recycled file keeps the seal record of its former life": Bug(
        "store/log/spares.py", "                file.write([bytes(BLOCK_BYTES)], BLOCK_BYTES)\n", "", ENDED,
    ),
    "core: segments are begun however many wait for their footers": Bug(
        "store/log/upkeep.py", "        self.sealer.make_way(lane)\n", "", PRESSED, hangs=True,
    ),
    "core: a sealing that fails is tried again at once": Bug(
        "store/log/sealer.py", "min(2 * before.rest_s, MOST_REST_S), before.times + 1", "0.0, before.times + 1",
        PRESSED,
    ),
    "core: an opening reads all of every spare": Bug(
        "store/segment/begun.py", "            return []\n    finally:", "            pass\n    finally:",
        ("tests/store/test_segment_files.py",),
    ),
    "core: a repair reads no further than the first spare": Bug(
        "store/recovery/lane_files.py", "is_thorough=self._repair.allowed", "is_thorough=False",
        ("tests/store/test_segment_files.py",),
    ),
    "core: what an earlier repair has left out takes the place of a later loss": Bug(
        "store/recovery/tally.py", "is_mixed = self._settled < self._open <", "is_mixed = self._open < self._settled <",
        ("tests/store/test_tally.py",),
    ),
    "core: the first blocks of a spare's first chunk are all that is looked at": Bug(
        "store/segment/begun.py", "not (is_next and _has_content(", "not (False and _has_content(",
        ("tests/store/test_segment_files.py",),
    ),
    "cache: the read cache does not count what goes": Bug(
        "cache/read_cache.py", "        self.used_bytes -= run.bytes\n", "",
        ("tests/cache/test_read_cache.py",),
    ),
    "core: what later frames add to the footer is not counted": Bug(
        "store/log/room.py", "(spare - BLOCK_BYTES) // (1 + MOST_SHARE)", "spare",
        ("tests/store/test_room.py::test_a_frame_that_fits_by_the_bound_fits_by_the_rule",),
    ),
    "core: a frame fits into a segment that was ended": Bug(
        "store/log/written_lane.py", "        self.fits_until = 0\n        data_end", "        data_end",
        ("tests/store/test_room.py::test_nothing_fits_into_a_segment_that_was_ended",),
    ),
}  # fmt: skip
