"""The fuzzer of damaged work queues in its short form, and that it notices wrong answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seeds import draw_seed
from tests.store.helpers import memory_folder

from .cases import damage
from .checks import Broken
from .damage import Fuzzer, Stock
from .orders import Order
from .places import Places, locate
from .work_cases import WorkCase
from .work_story import Job, WorkMaker, WorkPlan, WorkStory

QUIET = Order(caches=False, plain_first=False, append_plainly=True, append_in_repair=False, retire=True, seed=1)
PLAN = WorkPlan(lanes=1, closed=True, seed=3)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture(scope="module")
def sound(folder: Path) -> Places:
    (folder / "sound").mkdir()
    return locate(WorkMaker(PLAN, folder / "sound").make(), folder / "sound")


def story_of(places: Places) -> WorkStory:
    assert isinstance(places.story, WorkStory)
    return places.story


def job_that(places: Places, state: str) -> Job:
    return next(job for job in story_of(places).jobs.values() if job.state == state)


def test_damage_of_work_queues_is_told_and_never_answered_wrong(folder: Path) -> None:
    seed = draw_seed()
    home = folder / "fuzzed"
    home.mkdir()
    fuzzer = Fuzzer(seed, Stock(seed, 2, home, print, work_queues=True), home)
    findings = [fuzzer.run(number).finding for number in range(6)]
    assert not any(findings), "\n\n".join(str(finding) for finding in findings if finding is not None)


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_unharmed_work_queue_passes_all_checks(folder: Path, lanes: int) -> None:
    home = folder / f"whole-{lanes}"
    home.mkdir()
    places = locate(WorkMaker(PLAN._replace(lanes=lanes, closed=lanes == 1), home).make(), home)
    story = story_of(places)
    assert {job.state for job in story.jobs.values()} == {"waiting", "done", "dead"}
    assert story.moved(), "some jobs live on as copies"
    WorkCase(places, damage(places, []), QUIET, folder).run()


def test_the_same_seed_makes_the_same_jobs_in_the_same_segments(sound: Places, folder: Path) -> None:
    (folder / "again").mkdir()
    again = locate(WorkMaker(PLAN, folder / "again").make(), folder / "again")
    assert story_of(again).jobs == story_of(sound).jobs
    # Not the frames: a record of the background has one of its own, or shares one, as it comes.
    assert [file.name for file in again.files] == [file.name for file in sound.files]


@pytest.mark.parametrize(
    ("state", "told", "sees"),
    [
        ("waiting", "done", "a wrong answer without an error: workers .* gets"),
        ("done", "waiting", "a wrong answer without an error: workers lacks"),
        ("dead", "done", "a wrong answer without an error: clerk lacks"),
    ],
)
def test_a_job_in_another_state_is_noticed(sound: Places, folder: Path, state: str, told: str, sees: str) -> None:
    job = job_that(sound, state)
    job.state = told  # type: ignore[assignment]  # one of the literals
    try:
        with pytest.raises(Broken, match=sees):
            WorkCase(sound, damage(sound, []), QUIET, folder).run()
    finally:
        job.state = state  # type: ignore[assignment]


def test_other_settings_and_a_forgotten_id_are_noticed(sound: Places, folder: Path) -> None:
    story = story_of(sound)
    settings, jobs = story.settings, dict(story.jobs)
    try:
        story.settings = settings[:-1]
        with pytest.raises(Broken, match="settings that nobody made"):
            WorkCase(sound, damage(sound, []), QUIET, folder).run()
        story.settings = settings
        story.jobs[99, 0] = Job((99, 0), b"job 999999;", "done")
        with pytest.raises(Broken, match="clerk lacks"):
            WorkCase(sound, damage(sound, []), QUIET, folder).run()
    finally:
        story.settings = settings
        story.jobs.clear()
        story.jobs.update(jobs)
