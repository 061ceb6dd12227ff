"""Bugs of bulk commits: of shards, manifests and attaching."""

from __future__ import annotations

from .plant import Bug

CRASHES = ("tests/store/shards/test_crashes.py",)
ATTACHING = "tests/store/shards/test_attaching.py"
FRAMES = "tests/store/shards/test_frames.py"
BEHIND = "tests/store/test_write_behind.py"
QUESTIONS = "tests/store/shards/test_questions.py"

BULK: dict[str, Bug] = {
    "bulk: a manifest or an index is not forced before it has its name": Bug(
        "store/shards/writer.py", "        file.truncate(len(content))\n        file.force()\n",
        "        file.truncate(len(content))\n", CRASHES,
    ),
    "bulk: a shard is not forced before it is committed": Bug(
        "store/shards/writer.py", "        self._file.truncate(self.end)\n        self._file.force()\n",
        "        self._file.truncate(self.end)\n", CRASHES,
    ),
    "bulk: a shard's bytes are written by the force at its end alone": Bug(
        "store/shards/writer.py", "        self._behind.reached(self.end)\n", "", (BEHIND,)
    ),
    "bulk: what begins writing is called by a name that the system does not have": Bug(
        "store/device/linux_file.py", "use_errno=True).sync_file_range", "use_errno=True).sync_file_ranges", (BEHIND,)
    ),
    "bulk: a device that fails while a shard is written is not noticed": Bug(
        "store/device/linux_file.py", "            if number not in REFUSED:\n", "            if not number:\n",
        (BEHIND,),
    ),
    "bulk: a worker of Spark's lets the kernel put off acknowledging its task": Bug(
        "pipeline/workers.py", "        if _is_worker():\n            acknowledge()\n", "",
        ("tests/pipeline/test_workers.py",),
    ),
    "bulk: a commit returns before the manifest's name is durable": Bug(
        "store/shards/staging.py", "    disk.force_folder(folder)\n    return name\n", "    return name\n",
        (f"{ATTACHING}::test_a_commit_that_has_returned_survives_a_power_cut_before_it_is_attached",),
    ),
    "bulk: an attached segment is not forced before it has its name": Bug(
        "store/shards/rewriting.py", "        file.force()\n        return record\n", "        return record\n",
        CRASHES,
    ),
    "bulk: names in the lane are not forced before the manifest goes": Bug(
        "store/shards/lane_build.py", "        self._disk.force_folder(folder)\n", "", CRASHES,
    ),
    "bulk: the manifest goes before its shards are in the log": Bug(
        "store/shards/attacher.py", "        parts: list[ShardsPart] = []\n",
        "        parts: list[ShardsPart] = []\n        self._disk.remove(incoming_of(self._folder) / one.name)\n",
        CRASHES,
    ),
    "bulk: a manifest is attached before its name is durable": Bug(
        "store/shards/attacher.py", "                self._disk.force_folder(incoming_of(self._folder))\n",
        "                pass\n",
        (f"{ATTACHING}::test_a_manifest_is_durable_before_it_is_attached_also_if_its_committer_died",),
    ),
    "bulk: a commit that is gone on with after a crash begins anew": Bug(
        "store/shards/lane_attach.py",
        "        todo = shards if begun is None else shards[len(shards) - self._remaining(begun) :]\n",
        "        todo = shards\n", (f"{ATTACHING}::test_a_commit_that_was_cut_between_two_shards_is_finished",),
    ),
    "bulk: a small commit that is gone on with after a crash begins anew": Bug(
        "store/shards/lane_attach.py",
        "        skip = sum(staged.shard.rows for staged in shards) - remaining if remaining else 0\n",
        "        skip = 0\n", (f"{FRAMES}::test_a_commit_that_is_there_in_part_is_finished_by_the_next_opening",),
    ),
    "bulk: a small commit that is there in part is taken for whole": Bug(
        "store/shards/lane_attach.py", "            return max(0, known.first - self._reached)\n",
        "            return 0\n",
        (f"{FRAMES}::test_a_commit_that_is_there_in_part_is_finished_by_the_next_opening",),
    ),
    "bulk: the manifest of a small commit goes before its frames are forced": Bug(
        "store/log/at_once.py", "flusher.write_out(barrier=True)", "flusher.write_out()",
        (f"{FRAMES}::test_a_store_that_does_not_force_forces_a_commit_before_its_manifest_goes",),
    ),
    "bulk: the payloads of a small commit are believed without their checksums": Bug(
        "store/shards/loading.py", "            if whole_messages(frame, payload) < header.count:\n",
        "            if False:\n", (f"{FRAMES}::test_a_damaged_payload_is_not_appended",),
    ),
    "bulk: a writer knows no commit that came since it has been opened": Bug(
        "store/shards/lane_attach.py", "            lane.commits.add(made[0], waiting)\n", "            pass\n",
        (f"{FRAMES}::test_a_committer_beside_a_writer_knows_the_commits_of_the_segment_that_grows",),
    ),
    "bulk: of two drivers that make a store at once, the later one replaces the earlier one's": Bug(
        "pipeline/sink_stores.py", "            put_store(path, fresh)  #",
        "            put_store(path, fresh) or __import__('stratalog.store').store.replace_store(path, fresh)  #",
        ("tests/pipeline/test_sink_stores.py::test_two_drivers_that_make_the_same_store_at_once_share_it",),
    ),
    "bulk: the loss of a folder's last store is not seen": Bug(
        "pipeline/sink_stores.py", "    count = noted_shards(path)\n", "    count = None\n",
        ("tests/pipeline/test_sink_stores.py::test_a_folder_of_stores_that_lost_some_takes_no_rows",),
    ),
    "bulk: an overwrite removes what is no store": Bug(
        "store/api/replacing.py", "    if what is not None:\n", "    if False:\n",
        ("tests/pipeline/test_sink_stores.py::test_what_is_no_store_is_not_lost_by_an_overwrite",),
    ),
    "bulk: the name of a commit is not looked at": Bug(
        "store/api/commits.py", "        if is_new:\n", "        is_new = True\n        if is_new:\n",
        (f"{ATTACHING}::test_a_replayed_commit_changes_nothing",),
    ),
    "bulk: a replay is not compared with what it replays": Bug(
        "store/shards/attacher.py", "    if known not in (None, manifest.digest):\n", "    if False:\n",
        (f"{ATTACHING}::test_a_replay_with_other_rows_is_refused",),
    ),
    "bulk: a loser of a retry writes into the winner's shard": Bug(
        "store/shards/staging.py", "-{attempt}-{secrets.token_hex(8)}", "-{len(secrets.token_hex(8))}",
        (f"{ATTACHING}::test_a_task_that_lost_goes_on_writing_and_changes_nothing",),
    ),
    "bulk: footers do not carry the commits": Bug(
        "store/segment/sealing.py", "    data.applied = full.applied\n", "",
        (f"{ATTACHING}::test_applied_commits_survive_retention",),
    ),
    "bulk: what a manifest names is swept": Bug(
        "store/shards/staging.py", "        swept = [name for name in old if name not in kept]\n",
        "        swept = old\n",
        (f"{ATTACHING}::test_what_a_manifest_names_is_neither_aborted_nor_swept",),
    ),
    "bulk: the heads of a shard are believed without their checksums": Bug(
        "store/shards/rewriting.py", "    if lasting_sum(header, columns) != known:\n", "    if False:\n",
        ("tests/store/shards/test_repair.py",),
    ),
    "bulk: an answer to another question is taken": Bug(
        "store/shards/question.py", 'if fields is None or fields["number"] != self._number:', "if fields is None:",
        (f"{QUESTIONS}::test_an_answer_to_another_question_or_a_torn_one_is_none",),
    ),
    "bulk: an answer is believed without its checksum": Bug(
        "store/format/shard.py", '    if rest != b"%016x\\n" % checksum64(line):\n        return None\n', "",
        (f"{QUESTIONS}::test_an_answer_to_another_question_or_a_torn_one_is_none",),
    ),
    "bulk: what waits is looked at when the writer has answered": Bug(
        "store/api/commits.py",
        "            mine = [one.manifest for one in pending if",
        "            mine = [one.manifest for one in pending_in(disk, store) if",
        (f"{QUESTIONS}::test_a_commit_that_is_cleared_while_the_answer_is_on_its_way_is_known",),
    ),
    "bulk: a writer that has failed tells what it has in memory": Bug(
        "store/shards/lane_attach.py",
        "        self._check_poison()\n        return self._lane.commits.find(key)\n",
        "        return self._lane.commits.find(key)\n",
        (f"{QUESTIONS}::test_a_writer_that_has_failed_takes_no_commit_and_says_why",),
    ),
    "bulk: no answer is taken for none of that name": Bug(
        "store/api/commits.py", "        return found\n    finally:\n        question.end()\n",
        "        return found or {}\n    finally:\n        question.end()\n",
        (f"{QUESTIONS}::test_a_process_that_has_the_store_and_does_not_answer_is_waited_for_and_nothing_is_committed",),
    ),
    "bulk: a writer answers when it has attached": Bug(
        "store/shards/attacher.py", "        with self._answering:\n",
        "        with self._attaching, self._answering:\n",
        (f"{QUESTIONS}::test_a_writer_answers_while_it_attaches",),
    ),
    "bulk: a name that comes again is not there for a moment": Bug(
        "store/format/commit_names.py", "        with self._lock:  # `add` takes", "        if True:  # `add` takes",
        (f"{QUESTIONS}::test_a_name_that_comes_again_is_there_all_the_while",),
    ),
    "bulk: two threads make a table of a lane's names each": Bug(
        "store/format/commit_names.py", "        with self._lock:  # `add` takes", "        if True:  # `add` takes",
        (f"{QUESTIONS}::test_a_name_that_comes_while_another_thread_makes_the_table_is_kept",),
    ),
}  # fmt: skip
