"""Containers that threads share are copied in one step, and only copies are gone through.

A thread may lose the interpreter lock between any two steps of the interpreter, and also inside of one call of C that
makes objects: such a call may start the collector of garbage, that may run a finalizer of the program's, and this is
Python code. So `list(shared.items())`, which makes a tuple an item, may find that the dict has changed meanwhile. The
rule for a container that another thread may change, where no lock keeps it from that:

    list(shared)  list(shared.values())  set(shared)  sorted(shared)  dict(shared)    each makes its object first, and
                                                                                     fills it without making others
    dict(shared).items()                                                             of the caller's own copy

and never `tuple(..)`, `list(shared.items())`, `shared.copy()`, a loop, a comprehension or an unpacking. `WeakSet` and
its kin are copied by code in Python, so there are none.

The first test reads the sources. It sees attributes that a class makes as dict, set or deque, and `.items()`,
`.values()`, `.keys()` of any attribute. What is inside `with ..lock..` passes; what is safe for another reason is in
`SAFE`.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog import MessageStore
from stratalog.index import DelayedOperation, Purgatory, TimerThread, TimingWheel
from stratalog.store.device import forks
from stratalog.store.segment.postings import OpenRows

from .store.helpers import memory_folder, small

ROOT = Path(__file__).parent.parent
KINDS = {"dict", "set", "deque", "OrderedDict", "defaultdict", "Counter"}
WEAK = {"WeakSet", "WeakKeyDictionary", "WeakValueDictionary"}
VIEWS = {"items", "values", "keys"}
ONE_STEP = {"list", "dict", "set", "frozenset", "sorted", "len"}
TAKERS = ONE_STEP | {
    "Counter", "OrderedDict", "all", "any", "array", "chain", "deque", "enumerate", "extend", "filter", "fromiter",
    "fromkeys", "iter", "join", "map", "max", "min", "next", "reversed", "sum", "tuple", "update", "zip",
}  # fmt: skip

OWNER = "the object is used under one lock of its owner's"
ONE_CALL = "the object is made and used by one call"
ONE_THREAD = "one thread changes it and goes through it"
NEVER = "it does not change once others see it"
SAFE = {
    "index/trackers/": OWNER,
    "pipeline/jobs/": ONE_CALL,
    "store/verify/": ONE_CALL,
    "store/recovery/": ONE_CALL,
    "store/delayed/changes.py:came_until": ONE_CALL,
    "store/delayed/counting.py": ONE_CALL,
    "store/format/applied.py:batches_of": NEVER,
    "store/log/adoption.py:_adopt_streams": ONE_CALL,
    "store/metrics/catalogue.py:families": NEVER,
    "store/log/queue.py:_let_in": OWNER,
    "store/log/spares.py:fill_up": ONE_THREAD,
    "store/log/removal.py:close": ONE_THREAD,
    "store/read/scan.py:by_segment": NEVER,
    "store/segment/postings.py:_take_back": OWNER,
    "store/shards/lane_attach.py": ONE_THREAD,
    "store/subscriptions/": OWNER,
    "store/topics/aging.py": ONE_THREAD,
    "store/topics/id_windows.py:after_fork": ONE_THREAD,
}


def sources() -> Iterator[tuple[str, str]]:
    for folder in ("cache", "index", "pipeline", "store"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "testing" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def last_name(node: ast.expr) -> str:
    """`deque` of `collections.deque[int](..)`, of `deque[int]`, and of a text of these."""
    return ast.unparse(node).strip("'\"").split("[")[0].split("(")[0].split(".")[-1].split(" ")[0]


def is_container(value: ast.expr | None, annotation: ast.expr | None) -> bool:
    if annotation is not None and last_name(annotation) in KINDS:
        return True
    if isinstance(value, ast.Dict | ast.DictComp | ast.Set | ast.SetComp):
        return True
    return isinstance(value, ast.Call) and last_name(value.func) in KINDS | {"fromkeys"}


def containers_of(made: ast.ClassDef | ast.Module) -> set[str]:
    """The attributes of `self`, or the globals of a module, that are made as containers."""
    found = set()
    nodes = ast.walk(made) if isinstance(made, ast.ClassDef) else iter(made.body)
    for node in nodes:
        pairs: list[tuple[ast.expr, ast.expr | None, ast.expr | None]] = []
        if isinstance(node, ast.AnnAssign):
            pairs = [(node.target, node.value, node.annotation)]
        elif isinstance(node, ast.Assign):
            pairs = [(target, node.value, None) for target in node.targets]
        for target, value, annotation in pairs:
            if is_container(value, annotation):
                if isinstance(target, ast.Attribute):
                    found.add(target.attr)
                elif isinstance(target, ast.Name) and isinstance(made, ast.Module) and not target.id.isupper():
                    found.add(target.id)
    return found


def gone_through(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """What a node goes through, and how."""
    found: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.For):
        found = [("for", node.iter)]
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        found = [("for", each.iter) for each in node.generators]
    elif isinstance(node, ast.Call) and last_name(node.func) in TAKERS:
        found = [(last_name(node.func), each) for each in node.args]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy":
        found = [("copy", node.func.value)]
    elif isinstance(node, ast.Starred):
        found = [("*", node.value)]
    elif isinstance(node, ast.Dict):
        found = [("**", value) for key, value in zip(node.keys, node.values, strict=True) if key is None]
    return found


def places(name: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Where a container that may be shared is gone through in more than one step, and without a lock: (file and
    function, what is done)."""
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    of_module = containers_of(tree)
    of_class = {node: containers_of(node) for node in above if isinstance(node, ast.ClassDef)}
    for node in above:
        for how, taken in gone_through(node):
            view, of = "", taken
            if isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and of.func.attr in VIEWS:
                view, of = of.func.attr, of.func.value
            while isinstance(of, ast.Subscript):
                of = of.value
            if (how in ONE_STEP and view != "items") or not isinstance(of, ast.Attribute | ast.Name):
                continue
            around, at = [], node
            while at in above:
                at = above[at]
                around.append(at)
            made = next((of_class[one] for one in around if isinstance(one, ast.ClassDef)), set())
            is_own = isinstance(of, ast.Attribute) and of.attr in made and ast.unparse(of.value) == "self"
            is_module = isinstance(of, ast.Name) and of.id in of_module
            is_known = is_own or is_module or (view and isinstance(of, ast.Attribute))
            locks = [item for one in around if isinstance(one, ast.With) for item in one.items]
            if is_known and not any("lock" in ast.unparse(one.context_expr).lower() for one in locks):
                function = next((one.name for one in around if isinstance(one, ast.FunctionDef)), "")
                yield f"{name}:{function}", f"line {getattr(node, 'lineno', 0)}: {how} {ast.unparse(taken)}"


def test_containers_that_may_be_shared_are_copied_in_one_step() -> None:
    found = [place for name, text in sources() for place in places(name, ast.parse(text))]
    assert not [(where, what) for where, what in found if not where.startswith(tuple(SAFE))]
    unused = [safe for safe in SAFE if not any(where.startswith(safe) for where, _ in found)]
    assert not unused  # each reason is one for something that is there


def test_there_is_no_container_that_is_copied_in_python() -> None:
    assert not [name for name, text in sources() if any(f"weakref.{weak}" in text for weak in WEAK)]


@pytest.mark.parametrize(
    "text",
    [
        "list(self.shared.items())", "tuple(self.shared)", "[one for one in self.shared]", "self.shared.copy()",
        "max(self.shared.values())", "[*self.shared]", "{**self.shared}", "sorted(self.shared.items())",
        "list(other.thing.items())", "sum(len(one) for one in self.shared.values())",
        "sum(map(len, self.shared.values()))",
    ],
)  # fmt: skip
def test_reader_of_the_sources_finds(text: str) -> None:
    code = "class One:\n    def __init__(self):\n        self.shared: dict[int, int] = {}\n    def use(self, other):\n"
    assert len(list(places("x.py", ast.parse(f"{code}        return {text}\n")))) == 1
    safe = f"{code}        with self._lock:\n            return {text}\n"
    assert not list(places("x.py", ast.parse(safe)))


# -- garbage whose finalizers run in the middle ---------------------------------------------------------


class Again:
    """Garbage that changes something when it is collected, and is there again."""

    def __init__(self, change: Callable[[], object], goes_on: list[bool]) -> None:
        self.me = self
        self.change, self.goes_on = change, goes_on

    def __del__(self) -> None:
        if self.goes_on:
            self.change()
            Again(self.change, self.goes_on)


@contextmanager
def garbage(change: Callable[[], object]) -> Iterator[None]:
    """As often as the interpreter makes objects, something changes: as by another thread that a finalizer lets in."""
    before, goes_on = gc.get_threshold(), [True]
    gc.collect()
    gc.set_threshold(1, 1 << 20, 1 << 20)  # what was made just now is collected, and nothing else
    try:
        Again(change, goes_on)
        yield
    finally:
        gc.set_threshold(*before)
        goes_on.clear()
        gc.collect()


def growing(shared: Any, value: object) -> Callable[[], None]:
    """A change of a dict's or a set's size."""
    at = [10**9]

    def grow() -> None:
        at[0] += 1
        if isinstance(shared, dict):
            shared[at[0]] = value
        elif isinstance(shared, set):
            shared.add(at[0])
        else:
            shared.append(at[0])

    return grow


WAYS: dict[str, Callable[[Any], Any]] = {
    "list": list, "set": set, "sorted": sorted, "dict": dict, "values": lambda shared: list(shared.values()),
}  # fmt: skip


@pytest.mark.parametrize("make", [dict.fromkeys, set, deque], ids=["dict", "set", "deque"])
@pytest.mark.parametrize("way", WAYS)
def test_copies_in_one_step_are_whole_whatever_a_finalizer_does(make: Callable[..., Any], way: str) -> None:
    for count in (1, 5, 6, 100):
        shared: Any = make(range(count))
        if way in ("dict", "values") and not isinstance(shared, dict):
            continue
        if isinstance(shared, dict):
            del shared[0]  # has a gap
        with garbage(growing(shared, None)):
            for _ in range(5):
                copy = WAYS[way](shared)
                assert len(copy) == sum(1 for _ in [*copy])  # what it says, it has
                assert len(copy) >= count - 1


def test_rows_of_an_open_segment_are_looked_at_while_they_grow() -> None:
    rows = OpenRows(np.zeros(3000, np.int64), {number: (number, array("I", [1])) for number in range(3000)}, 3000)
    with garbage(growing(rows.by_number, (7, array("I", [1])))):
        assert rows.first_offsets().tolist() == list(range(3000))
        assert rows.nbytes() >= 3000


def test_names_and_figures_are_listed_while_finalizers_change_them() -> None:
    with memory_folder() as path, MessageStore.open(path, small()) as store:
        store.append_batch([(f"topic {at:03}", at % 3, b"x") for at in range(200)])
        store.append("delayed", 0, b"x", deliver_at_ms=1 << 50)
        store.subscribe("delayed", "some").close()
        streams = store._streams
        seen = store.topics()
        calls: list[tuple[Any, object, Callable[[], object]]] = [
            (streams.topics, {}, lambda: store.topics()[: len(seen)] == seen),
            (streams.topics["topic 001"], streams.get("topic 001", 1), lambda: 1 in store.queues("topic 001")),
            (streams.topics, {}, lambda: len(streams) == 201),
            (streams.topics, {}, lambda: bool(store.stats()["streams"])),
            (streams.hidden, next(iter(streams.hidden.values())), lambda: _of_kinds(store)),
        ]
        for shared, value, call in calls:
            before = dict(shared)
            at = [0]

            def grow(shared: Any = shared, value: object = value, at: list[int] = at) -> None:
                at[0] += 1
                shared[f"zz {at[0]:09}" if shared is not streams.topics["topic 001"] else 10 + at[0]] = value

            with garbage(grow):
                for _ in range(3):
                    assert call()
            shared.clear()
            shared.update(before)


def _of_kinds(store: MessageStore) -> bool:
    return len(store._running.delays.parts.hidden.of_kind("delays")) >= 0  # type: ignore[union-attr]


def test_those_who_are_told_of_a_fork_are_listed_while_others_come() -> None:
    class One:
        def _after_fork(self) -> None: ...
        def _at_exit(self) -> None: ...

    kept: list[One] = []

    def more() -> None:
        kept.append(One())
        forks.watch(kept[-1])

    mine = [One() for _ in range(50)]
    for one in mine:
        forks.watch(one)
    try:
        with garbage(more):
            for _ in range(5):
                assert set(map(id, mine)) <= set(map(id, forks._watched()))
    finally:
        for one in [*mine, *kept]:
            forks.forget(one)


class Never(DelayedOperation):
    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None: ...

    def on_expiration(self) -> None: ...


def test_threads_that_change_and_threads_that_look_do_not_meet_in_the_middle() -> None:
    """The calls of the sources beside one another, with a tiny switch interval and finalizers that let others in."""
    interval, before = sys.getswitchinterval(), gc.get_threshold()
    errors: list[BaseException] = []
    over = threading.Event()

    class Node:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None: ...

    def thread(work: Callable[[int], object]) -> threading.Thread:
        def run() -> None:
            try:
                for at in range(1 << 30):
                    if over.is_set():
                        return
                    Node()
                    work(at)
            except BaseException as error:
                errors.append(error)

        started = threading.Thread(target=run)
        started.start()
        return started

    with memory_folder() as path, MessageStore.open(path, small()) as store, TimerThread(TimingWheel()) as timers:
        purgatory = Purgatory(timers)
        store.append_batch([(f"t{at}", 0, b"x") for at in range(100)])
        try:
            sys.setswitchinterval(1e-6)
            gc.set_threshold(20, 5, 1000)
            threads = [
                thread(lambda at: store.append_batch([(f"t{at}", queue, b"x") for queue in range(5)])),
                thread(lambda at: store.append_batch([("many", 5 * at + queue, b"x") for queue in range(5)])),
                thread(lambda at: purgatory.try_complete_else_watch(Never(100_000), [at])),
                thread(lambda at: (store.topics(), store.queues("many"), store.stats())),
                thread(lambda at: (store.get_range("many", at % 50, 0, 8), purgatory.watched_keys())),
                thread(lambda at: (store._lanes[0].view.open[-1].table.first_offsets(), purgatory.watched)),
            ]
            threading.Event().wait(1.0)
        finally:
            over.set()
            for one in threads:
                one.join()
            sys.setswitchinterval(interval)
            gc.set_threshold(*before)
            purgatory.close()
    assert not errors
