"""Bugs of bulk commits: of shards, manifests and attaching."""

from __future__ import annotations

from .plant import Bug

CRASHES = ("tests/store/shards/test_crashes.py",)
ATTACHING = "tests/store/shards/test_attaching.py"

BULK: dict[str, Bug] = {
    "bulk: a manifest or an index is not forced before it has its name": Bug(
        "store/shards/writer.py", "        file.truncate(len(content))\n        file.force()\n",
        "        file.truncate(len(content))\n", CRASHES,
    ),
    "bulk: a shard is not forced before it is committed": Bug(
        "store/shards/writer.py", "        self._file.truncate(self.end)\n        self._file.force()\n",
        "        self._file.truncate(self.end)\n", CRASHES,
    ),
    "bulk: a commit returns before the manifest's name is durable": Bug(
        "store/shards/staging.py", "    disk.force_folder(folder)\n    return name\n", "    return name\n", CRASHES,
    ),
    "bulk: an attached segment is not forced before it has its name": Bug(
        "store/shards/rewriting.py", "        file.force()\n        return record\n", "        return record\n",
        CRASHES,
    ),
    "bulk: names in the lane are not forced before the manifest goes": Bug(
        "store/shards/lane_build.py", "        self._disk.force_folder(folder)\n", "", CRASHES,
    ),
    "bulk: the manifest goes before its shards are in the log": Bug(
        "store/shards/attacher.py", "        waiting = frozenset(",
        "        self._disk.remove(incoming_of(self._folder) / one.name)\n        waiting = frozenset(", CRASHES,
    ),
    "bulk: a manifest is attached before its name is durable": Bug(
        "store/shards/attacher.py", "                self._disk.force_folder(incoming_of(self._folder))\n",
        "                pass\n",
        (f"{ATTACHING}::test_a_manifest_is_durable_before_it_is_attached_also_if_its_committer_died",),
    ),
    "bulk: a commit that is gone on with after a crash begins anew": Bug(
        "store/shards/lane_attach.py", "            todo = shards[len(shards) - remaining :] if is_begun else shards\n",
        "            todo = shards\n", (f"{ATTACHING}::test_a_commit_that_was_cut_between_two_shards_is_finished",),
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
}  # fmt: skip
