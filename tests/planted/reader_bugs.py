"""Bugs of readers that outlive writers, of threads that die, and of containers that threads share."""

from __future__ import annotations

from .plant import Bug

WRITERS = "tests/store/test_other_writers.py"
THREADS = "tests/store/test_threads.py"
SHARED = "tests/test_shared_containers.py"

READERS: dict[str, Bug] = {
    "readers: places in a mirror are counted from another beginning than its writer's": Bug(
        "store/live/followed_ring.py", "self.shape = origin, len(memory), memory",
        "self.shape = 0, len(memory), memory",
        (f"{WRITERS}::test_places_of_each_mirror_are_those_of_its_writer",),
    ),
    "readers: a place of one mirror is looked up in another's bytes": Bug(
        "store/device/ring.py", "        origin, whole, memory = self.shape\n",
        "        origin, whole, _ = self.shape\n        memory = self._map\n",
        (f"{WRITERS}::test_read_beside_a_change_of_mirrors_takes_one_of_them",),
    ),
    "readers: the mirror of the writer before is asked": Bug(
        "store/live/follower.py", "(page is None or not page.is_of(self._mirror_of))", "page is None",
        (f"{WRITERS}::test_mirror_of_a_writer_that_was_killed_is_let_go_of_with_the_first_state_of_the_next",),
    ),
    "readers: a page has the next writer's states before its name": Bug(
        "store/live/publisher.py", "            page.store(0, header._replace(boot_id=found.boot_id).pack())\n",
        "            pass\n", (f"{WRITERS}::test_page_names_the_next_writer_before_it_has_a_state_of_it",),
    ),
    "readers: memory of another page is taken for a mirror": Bug(
        "store/format/mirror.py", "mine = self.store_id, self.lanes, self.inode,",
        "mine = self.store_id, self.lanes, page.inode,",
        (f"{WRITERS}::test_memory_that_names_another_page_is_no_mirror",),
    ),
    "readers: a whole frame of another place has the message's key": Bug(
        "store/segment/frame_heads.py",
        "(header.lane, header.sequence, header.position) != (mine.lane, mine.sequence, position)", "mine is None",
        (f"{WRITERS}::test_frame_is_taken_for_a_message_only_if_it_is_its_own",),
    ),
    "readers: a frame with other messages has the message's key": Bug(
        "store/segment/frame_heads.py", " == told and found == known\n", " == told\n",
        (f"{WRITERS}::test_frame_is_taken_for_a_message_only_if_it_is_its_own",),
    ),
    "readers: what another process's ring has wrong is called damage": Bug(
        "store/segment/frame_heads.py", " or ring.is_own else (ring, None)", " or True else (ring, None)",
        (f"{WRITERS}::test_frame_is_taken_for_a_message_only_if_it_is_its_own",),
    ),
    "threads: the thread that watches a page dies of what it does not expect": Bug(
        "store/live/follower.py", "            except BaseException:  # the thread goes on",
        "            except (OSError, StoreError):  # the thread goes on",
        (f"{THREADS}::test_reader_closes_whatever_its_watching_thread_meets",),
    ),
    "threads: nobody waits for the end of a thread that sleeps on the page": Bug(
        "store/live/follower.py", "            self._watching.join(self._wake_sleeper)\n", "            pass\n",
        (f"{THREADS}::test_no_thread_of_a_reader_is_left_behind_its_close",),
    ),
    "threads: a reader for whom there is no thread raises what Python raises": Bug(
        "store/live/follower.py", "            except NoThread:  # it looks for itself",
        "            except ZeroDivisionError:  #",
        (f"{THREADS}::test_reader_without_threads_looks_again_and_again",),
    ),
    "threads: upkeep ends by an error outside of its tasks": Bug(
        "store/log/upkeep.py", "goes_on = self._try(self._goes_on)", "goes_on = self._goes_on()",
        (f"{THREADS}::test_upkeep_goes_on_after_an_error_outside_of_its_tasks",),
    ),
    "threads: an error that a thread lets out goes unseen": Bug(
        "store/device/background.py", '            report("a thread of the store has ended by an error", error)\n',
        "            del error\n", (f"{THREADS}::test_join_returns_when_the_work_has_raised",),
    ),
    "containers: rows are listed in steps while readers add to them": Bug(
        "store/segment/postings.py", "in dict(self.by_number).items():", "in list(self.by_number.items()):",
        (f"{SHARED}::test_rows_of_an_open_segment_are_looked_at_while_they_grow",),
    ),
    "containers: topics are listed in steps while appends make new ones": Bug(
        "store/api/fetcher.py", "in dict(self._topics).items()]", "in list(self._topics.items())]",
        (f"{SHARED}::test_names_and_figures_are_listed_while_finalizers_change_them",),
    ),
    "containers: hidden streams are listed in steps": Bug(
        "store/log/hidden_streams.py", "sorted(dict(self._streams.hidden).items())",
        "sorted(self._streams.hidden.items())",
        (f"{SHARED}::test_names_and_figures_are_listed_while_finalizers_change_them",),
    ),
    "containers: one that threads share is gone through where a lock is not held": Bug(
        "store/delayed/delays.py", "list(islice(self.topics, None if most is None else most - len(damaged)))",
        "[name for name in self.topics]",
        (f"{SHARED}::test_containers_that_may_be_shared_are_copied_in_one_step",),
    ),
    "errors: an offset out of range does not say of which queue": Bug(
        "store/errors.py", "        self.queue_id = queue_id\n", "",
        ("tests/store/test_errors.py::test_offset_out_of_range_says_what_was_asked_for",),
    ),
}  # fmt: skip
