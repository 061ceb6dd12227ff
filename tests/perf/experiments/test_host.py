"""`bench host` in its short form: its report, its advice, and what it refuses."""

from __future__ import annotations

import ast
import errno
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stratalog import CacheConfig, StoreConfig, StoreFull
from stratalog.perf.commands.app import app
from stratalog.perf.experiments import host as host_module
from stratalog.perf.experiments.host import Host
from stratalog.perf.experiments.host_advice import HostFigures, advice, percent, summary, took
from stratalog.perf.experiments.host_store import LEAST_READS, MANY, Stores, read_parts
from stratalog.perf.experiments.parts import Count, Part, measured
from stratalog.perf.machine.folders import TooLittleSpace
from stratalog.perf.report.files import read_report
from stratalog.perf.report.progress import NOWHERE, Run
from stratalog.perf.report.record import Measure, Report
from stratalog.perf.workload.latencies import NoHistogram
from tests.browser import DESKTOP, PHONE, complaints

FILES = ["host.html", "host.json", "host.md"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a short run's report, and what the run printed."""
    made = tmp_path_factory.mktemp("host")
    for name in ("runs", "pmem", "report"):
        (made / name).mkdir()
    options = ["--dir", made / "runs", "--pmem", made / "pmem", "--report", made / "report"]
    done = CliRunner().invoke(app, ["host", "--short", *map(str, options)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    assert list((made / "runs").iterdir()) == list((made / "pmem").iterdir()) == []
    yield made / "report", done.output


@pytest.fixture(scope="module")
def host(folders: tuple[Path, str]) -> Report:
    return read_report(folders[0] / "host.json")


def test_it_writes_three_files_and_says_where(folders: tuple[Path, str]) -> None:
    folder, said = folders
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert all(f"written: {folder / name}" in said for name in FILES)
    assert said.splitlines()[-1].endswith("messages read and compared with what was written: no difference")
    assert int(said.splitlines()[-1].split()[0].replace(",", "")) > 1000


def test_first_lines_say_rates_latencies_share_of_the_device_and_what_to_set(
    folders: tuple[Path, str], host: Report
) -> None:
    first = " ".join(folders[1].splitlines()[:10])
    for part in ("Durable messages of 1 KiB", "p50", "p99", "p99.9", "Share of the device"):
        assert part in first
    assert len(host.summary) <= 10
    assert host.summary[0] in " ".join(folders[1].split())
    assert any("Set here: StoreConfig(" in line or "default StoreConfig fits" in line for line in host.summary)


def test_every_figure_that_the_issue_asks_for_is_there(host: Report) -> None:
    wanted = {
        "write.forced.4k.1.mb_per_s", "write.forced.4k.4.p99", "write.forced.4k.1.paged.mb_per_s",
        "write.forced.256k.1.growing.mb_per_s", "write.forced.256k.1.fallocated.mb_per_s",
        "write.unforced.256k.1.mb_per_s", "write.unforced.256k.1.paged.mb_per_s", "read.random.1.p50",
        "read.random.4.mb_per_s", "read.sequential.mb_per_s", "read.paged.mb_per_s", "memory.off_heap.map",
        "memory.off_heap.fill", "memory.private_file.read", "memory.persistent.small_us", "wake.thread.us",
        "wake.threads.us", "wake.coroutines.us", "store.append.1.p99.9", "store.append.10.per_s",
        "store.append.40.per_s", "store.async.40.per_s", "store.submit.per_s", "store.batch.mb_per_s",
        "store.read.ring.p50", "store.read.paged.p50", "store.read.device.p50", "store.read.off_heap.p50",
        "store.read.persistent.p50", "store.jobs.per_s", "setting.lanes_2.per_s", "setting.durability_os.per_s",
        "setting.segment_bytes.per_s", "setting.publish_buffer_bytes.per_s", "setting.cache_plan.per_s",
    }  # fmt: skip
    measures = host.measures()
    assert wanted - measures.keys() == set()
    for name in (
        "store.batch.mb_per_s",
        "store.append.40.per_s",
        *(one for one in wanted if one.startswith("setting")),
    ):
        assert measures[name].reference is not None and measures[name].reference_what
    assert all(one.value >= 0 for one in measures.values())


def test_first_touch_of_the_heap_is_no_figure_and_no_reference(host: Report) -> None:
    """A bytearray has touched its pages when it is made: a loop over them would measure the interpreter."""
    measures = host.measures()
    assert "memory.heap.map" not in measures
    touches = [one for name, one in measures.items() if name.startswith("memory.") and name.endswith(".map")]
    assert touches and all(one.reference is None for one in touches)


def test_report_names_machine_versions_commit_load_and_seed(host: Report) -> None:
    told = host.machine
    assert {"CPU", "memory", "disk", "system", "interpreter", "versions", "commit", "others", "seed"} <= told.keys()
    assert "stratalog" in told["versions"] and "hdrhistogram" in told["versions"]
    assert told["seed"] == "2021" and "others used" in told["others"]
    assert all(part in host.how for part in (" host --", " --pmem ", " --dir ")) and "CPython" in host.how


def settings_of(report: Any) -> dict[str, Any]:
    """The values of an advice, as Python reads them."""
    found = {}
    for one in report:
        names = {"CacheConfig": CacheConfig}
        found[one.setting] = eval(compile(ast.parse(one.value, mode="eval"), "advice", "eval"), names)
    return found


def test_latency_says_of_how_many_calls_it_is(host: Report) -> None:
    for name in ("store.append.1.p50", "store.read.paged.p50", "store.jobs.p50", "write.forced.4k.1.p99"):
        assert re.search(r"\bof [1-9][0-9,]* calls?\b", host.measures()[name].meaning), name


def test_read_is_never_measured_by_one_call(tmp_path: Path) -> None:
    stores = Stores(tmp_path, Run("host", NOWHERE), 0.0, 512, 2021)
    (part,) = [one for one in read_parts(stores) if one.name == "store.read.paged"]
    assert part.run()["calls"] == LEAST_READS


def test_advice_is_a_store_config_with_a_reason_and_a_worth_each(host: Report) -> None:
    StoreConfig(**settings_of(host.advice))
    assert all(one.why and one.worth for one in host.advice)
    assert {one.setting for one in host.advice} == {
        "lanes", "durability", "segment_bytes", "publish_buffer_bytes", "memory_limit_bytes", "cache",
    }  # fmt: skip


def changed(host: Report, **values: float) -> dict[str, Measure]:
    """The measures with other values, by their names with "__" for "."; each then has the reference 100."""
    found = dict(host.measures())
    for name, value in values.items():
        old = found[name.replace("__", ".")]
        given = {**old.__dict__, "values": (value,), "reference": 100.0, "reference_what": "the default"}
        found[old.name] = Measure(**given)
    return found


def test_setting_that_helps_in_some_rounds_alone_is_not_advised(host: Report) -> None:
    measures = changed(host, setting__lanes_2__per_s=150.0, setting__lanes_4__per_s=100.0)
    two = measures["setting.lanes_2.per_s"]
    measures[two.name] = Measure(**{**two.__dict__, "values": (150.0, 105.0, 160.0)})
    assert settings_of(advice(HostFigures(measures, 1 << 40)))["lanes"] == 1


@pytest.mark.parametrize(("two", "four", "lanes"), [(105.0, 80.0, 1), (130.0, 120.0, 2), (130.0, 150.0, 4)])
def test_lanes_are_advised_if_they_give_a_tenth(host: Report, two: float, four: float, lanes: int) -> None:
    measures = changed(host, setting__lanes_2__per_s=two, setting__lanes_4__per_s=four)
    assert settings_of(advice(HostFigures(measures, 1 << 40)))["lanes"] == lanes
    told = summary(HostFigures(measures, 1 << 40))[-1]
    assert ("lanes=" in told) == (lanes != 1)


def test_persistent_tier_is_advised_if_it_is_faster_than_the_device_and_appends_stay_quick(
    host: Report, tmp_path: Path
) -> None:
    for share, appends, wanted in ((30.0, 95.0, True), (99.0, 95.0, False), (30.0, 50.0, False)):
        measures = with_tier(host, share, appends)
        cache = settings_of(advice(HostFigures(measures, 1 << 40, tmp_path, 1 << 30)))["cache"]
        assert isinstance(cache, CacheConfig) == wanted
        if wanted:
            assert (cache.persistent_bytes, cache.persistent_folder) == (1 << 29, str(tmp_path))


def with_tier(host: Report, tier_us: float, appends: float = 95.0, paged_us: float = 90.0) -> dict[str, Measure]:
    """The measures with a tier in --pmem that takes so long, beside a device that takes 100 us."""
    return changed(
        host,
        store__read__persistent__p50=tier_us,
        store__read__paged__p50=paged_us,
        setting__cache_persistent__per_s=appends,
    )


def test_tier_is_not_advised_where_the_page_cache_is_quicker(host: Report, tmp_path: Path) -> None:
    for paged_us, wanted in ((29.0, False), (31.0, True)):
        told = HostFigures(with_tier(host, 30.0, paged_us=paged_us), 1 << 40, tmp_path, 1 << 30)
        (one,) = [one for one in advice(told) if one.setting == "cache"]
        assert (one.value != "None") == wanted
        assert wanted or "page cache" in one.why
        (line,) = (line for line in summary(told) if line.startswith("A cache for old messages in"))
        assert line.endswith("worth having where consumers come back to old messages." if wanted else "leave it out.")


def test_tier_on_a_tmpfs_has_at_most_half_of_the_memory_that_is_available(host: Report, tmp_path: Path) -> None:
    told = HostFigures(with_tier(host, 30.0), 1 << 40, tmp_path, pmem_free_bytes=64 << 30, pmem_memory_bytes=2 << 30)
    (one,) = [one for one in advice(told) if one.setting == "cache"]
    assert settings_of([one])["cache"].persistent_bytes == 1 << 30
    assert "a tmpfs is memory" in one.why


def test_a_tmpfs_is_known_as_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for kind, known in (("tmpfs", True), ("ramfs", True), ("ext4", False)):
        monkeypatch.setattr(host_module, "file_system_of", lambda folder, kind=kind: kind)
        assert (host_module.memory_behind(tmp_path) is not None) == known


def test_small_segments_are_advised_on_a_small_disk(host: Report) -> None:
    measures = changed(host, setting__segment_bytes__per_s=100.0)
    for free, wanted in ((1 << 30, 32 << 20), (1 << 40, 256 << 20)):
        assert settings_of(advice(HostFigures(measures, free)))["segment_bytes"] == wanted


@pytest.mark.parametrize("option", ["--dir", "--pmem", "--report"])
def test_folder_that_does_not_exist_is_a_usage_error_and_nothing_is_made(tmp_path: Path, option: str) -> None:
    for name in ("--dir", "--pmem", "--report"):
        (tmp_path / name).mkdir()
    options = {name: str(tmp_path / name) for name in ("--dir", "--pmem", "--report")}
    options[option] = str(tmp_path / "mistyped")
    words = [word for pair in options.items() for word in pair]
    done = CliRunner().invoke(app, ["host", "--short", *words], env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert "there is no folder" in done.output and "mistyped" in done.output
    assert [path for path in tmp_path.rglob("*") if path.parent != tmp_path] == []
    assert not (tmp_path / "mistyped").exists()


def test_missing_package_of_histograms_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    done = CliRunner().invoke(app, ["host", "--short", "--dir", str(tmp_path), "--report", str(tmp_path)])
    assert isinstance(done.exception, NoHistogram) and "pip install" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_report_that_could_not_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(dir: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(ValueError, match=r"cannot be written to .* \(Permission denied\)"):
        Host(report=tmp_path)


def test_too_little_space_in_pmem_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pmem").mkdir()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: usage._replace(free=(1 << 50) * ("pmem" not in str(folder)))
    )
    options = ["--dir", str(tmp_path), "--pmem", str(tmp_path / "pmem"), "--report", str(tmp_path)]
    done = CliRunner().invoke(app, ["host", "--short", *options])
    assert isinstance(done.exception, TooLittleSpace) and "pmem" in str(done.exception)
    assert list((tmp_path / "pmem").iterdir()) == []


def test_store_takes_no_more_than_its_bytes_however_long_the_run_is(tmp_path: Path) -> None:
    most, run = 64 << 10, Run("host", NOWHERE)
    stores = Stores(tmp_path, run, 60.0, 256, 2021, most_bytes=most)
    for name, (_, way, messages) in stores.ways().items():
        before = run.checked_messages
        stores.append(way, messages)
        written = (run.checked_messages - before) * 1024
        assert most <= written <= most + (MANY + 256) * 1024, name


def test_space_that_is_asked_for_is_that_of_what_is_written() -> None:
    assert Host(minutes=500.0).need_bytes() == Host(minutes=1.0).need_bytes() > 2 * Host(minutes=1.0).most_bytes
    assert Host(messages=64 << 20).need_bytes() > 64 << 30


def test_part_that_fails_is_left_out_and_said_and_all_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Stores, *given: Any) -> dict[str, float]:
        raise StoreFull("no space for another segment")

    monkeypatch.setattr(Stores, "append", full)
    options = ["--dir", str(tmp_path), "--pmem", str(tmp_path), "--report", str(tmp_path)]
    done = CliRunner().invoke(app, ["host", "--short", *options], env={"COLUMNS": "300"})
    assert done.exit_code == 0, (done.output, done.exception)
    report = read_report(tmp_path / "host.json")
    measures = report.measures()
    assert "write.forced.4k.1.mb_per_s" in measures and "store.read.ring.p50" in measures
    assert "store.batch.per_s" not in measures
    (missing,) = (line for line in report.summary if line.startswith("Missing here: "))
    assert "store.batch" in missing and "StoreFull: no space for another segment" in missing
    assert any(line.startswith("The device without a store: ") for line in report.summary)
    assert all(one.setting != "lanes" for one in report.advice)
    assert not any("default StoreConfig fits" in line for line in report.summary)


def test_share_of_a_missing_reference_is_no_share(host: Report) -> None:
    measures = dict(host.measures())
    one = measures["setting.durability_os.per_s"]
    measures[one.name] = Measure(**{**one.__dict__, "reference": None})
    assert "durability" not in {one.setting for one in advice(HostFigures(measures, 1 << 40))}


def test_part_that_fails_in_a_later_round_keeps_the_rounds_before() -> None:
    rounds = iter([1.0, 2.0])

    def run() -> dict[str, float]:
        value = next(rounds, None)
        if value is None:
            raise StoreFull("full")
        return {"per_s": value}

    count = Count(figure="per_s", what="a", unit="msg/s")
    failed: dict[str, str] = {}
    found = measured([Part("a", run, (count,))], 5, Run("host", NOWHERE), failed)
    assert (found["a.per_s"].values, failed) == ((1.0, 2.0), {"a": "StoreFull: full"})


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_page_of_a_real_run_has_no_complaint_of_the_browser(
    folders: tuple[Path, str], tmp_path: Path, size: tuple[int, int]
) -> None:
    assert complaints((folders[0] / "host.html").as_uri(), tmp_path / "home", size) == []


def test_file_in_place_of_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    done = CliRunner().invoke(app, ["host", "--short", "--dir", str(tmp_path / "notes")], env={"COLUMNS": "300"})
    assert done.exit_code == 2 and "is a file and no folder" in done.output


def test_first_lines_say_each_number_in_words_of_their_own(host: Report) -> None:
    text = " ".join(host.summary)
    for told in ("Durable: the call returns when the disk has the message", "us: microseconds", "page cache"):
        assert told in text
    for word in ("frame", "lane", "tier", "O_DIRECT", "high-water", "forced"):
        assert not re.search(rf"\b{word}\b", text), word
    assert [took(us) for us in (2.34, 48.2, 929.0, 79_954.0, 1_234_567.0)] == [
        "2.3 us", "48 us", "0.93 ms", "80 ms", "1.2 s",
    ]  # fmt: skip
    assert [percent(share) for share in (0.0, 0.0012, 0.05, 1.17)] == ["0 %", "0.12 %", "5 %", "117 %"]


def test_mark_of_more_calls_than_there_were_is_not_in_the_first_lines(host: Report) -> None:
    measures = dict(host.measures())
    for calls, marks in ((99, 1), (999, 2), (1000, 3)):
        one = measures["store.append.1.p50"]
        measures[one.name] = Measure(**{**one.__dict__, "meaning": f"what a caller waits; of {calls:,} calls"})
        line = summary(HostFigures(measures, 1 << 40))[1]
        alone = line.partition("of a thread alone")[2].partition(". (")[0]
        assert alone.count("p") == marks, line


def test_lanes_that_gave_more_in_some_rounds_alone_are_said_to_be_unsure(host: Report) -> None:
    measures = changed(
        host, store__append__40__per_s=100.0, setting__lanes_2__per_s=150.0, setting__lanes_4__per_s=90.0
    )
    two = measures["setting.lanes_2.per_s"]
    measures[two.name] = Measure(**{**two.__dict__, "values": (150.0, 105.0, 160.0)})
    (one,) = (one for one in advice(HostFigures(measures, 1 << 40)) if one.setting == "lanes")
    assert one.value == "1" and "not in each round" in one.why
