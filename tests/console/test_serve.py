"""`stratalog serve`: ready with an address, answers calls, ends in order on a signal."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stratalog import MessageStore, StoreLocked
from stratalog.console.serve import users_of
from stratalog.endpoint.server.certificate import Certificate
from stratalog.endpoint.server.users import authorization
from stratalog.endpoint.wire import CLASSES, SERVICE, Code

from ..store.helpers import PATIENCE_S
from .command import ROOT, process, run

NAMES = [("x-mq-client-id", "test")]


@contextmanager
def served(folder: Path, *options: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that serves, and its address."""
    child = process("serve", folder, "--port", 0, *options)
    try:
        assert child.stdout is not None
        line = child.stdout.readline().decode()
        assert line.startswith("ready "), line + child.communicate()[1].decode()
        yield child, line.removeprefix("ready ").strip()
    finally:
        child.kill()
        child.communicate()


def send(channel: grpc.Channel, topic: str, body: bytes, metadata: Any = NAMES) -> Any:
    """The status of a message's answer."""
    message = CLASSES["Message"](topic=CLASSES["Resource"](name=topic), body=body)
    message.system_properties.message_id = body.hex()
    call: Any = channel.unary_unary(
        f"/{SERVICE}/SendMessage",
        request_serializer=CLASSES["SendMessageRequest"].SerializeToString,
        response_deserializer=CLASSES["SendMessageResponse"].FromString,
    )
    asked = CLASSES["SendMessageRequest"](messages=[message])
    return call(asked, metadata=metadata, timeout=PATIENCE_S).status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_until_a_signal_and_what_it_answered_is_there(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path / "store") as (child, address):
        with grpc.insecure_channel(address) as channel:
            assert send(channel, "orders", b"one").code == Code.OK
        with pytest.raises(StoreLocked):
            MessageStore.open(tmp_path / "store")
        child.send_signal(number)
        out, errors = child.communicate(timeout=PATIENCE_S)
        assert (child.returncode, out, errors) == (0, b"stopped\n", b"")
    with MessageStore.open(tmp_path / "store") as store:
        assert [one.data for queue in store.queues("orders") for one in store.read("orders", queue)] == [b"one"]


def test_a_second_one_on_the_port_says_so(tmp_path: Path) -> None:
    with served(tmp_path / "store") as (_, address):
        shown = run("serve", tmp_path / "other", "--port", address.rpartition(":")[2], code=3)
        assert "listens on 127.0.0.1 port" in " ".join(shown.errors.split())
        shown = run("serve", tmp_path / "store", "--port", 0, code=5)
        assert "open" in shown.errors


def page(url: str) -> str:
    with urlopen(url, timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def test_metrics_are_on_a_port_of_their_own_which_no_other_server_shares(tmp_path: Path) -> None:
    with served(tmp_path / "store", "--metrics-port", 0) as (child, ready):
        address, word, url = ready.split()
        assert word == "metrics" and url.startswith("http://127.0.0.1:") and url.endswith("/metrics")
        with grpc.insecure_channel(address) as channel:
            assert send(channel, "orders", b"one").code == Code.OK
        found = {one.name: one for one in text_string_to_metric_families(page(url))}
        assert found["stratalog_appended_messages"].samples[0].value >= 1
        assert [one.labels for one in found["stratalog_topic_queues"].samples] == [{"topic": "orders"}]
        port = url.rpartition(":")[2].partition("/")[0]
        with socket.create_connection(("127.0.0.1", int(port))) as silent:
            silent.send(b"\x00\xff garbage")
            assert page(url)
            second = process("serve", tmp_path / "other", "--port", 0, "--metrics-port", port)
            _, errors = second.communicate(timeout=PATIENCE_S)
            assert second.returncode == 3 and b"in use" in errors
            assert not (tmp_path / "other").exists()
            child.send_signal(signal.SIGTERM)
            assert child.wait(PATIENCE_S) == 0
    with MessageStore.open(tmp_path / "store") as store:
        assert store.topics() == ["orders"]


def test_with_users_calls_are_signed(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("# name:secret\n\nak:s:k\n")
    assert users_of(users) == {"ak": "s:k"}
    with served(tmp_path / "store", "--users", users) as (_, address), grpc.insecure_channel(address) as channel:
        assert send(channel, "orders", b"one").code == Code.UNAUTHORIZED
        signed = [*NAMES, *authorization("ak", "s:k", "20261127T120000Z")]
        assert send(channel, "orders", b"one", signed).code == Code.OK


def test_a_certificate_of_the_user(tmp_path: Path) -> None:
    made = Certificate.self_signed("127.0.0.1")
    paths = [tmp_path / "certificate.pem", tmp_path / "key.pem"]
    for path, data in zip(paths, (made.certificate_pem, made.key_pem), strict=True):
        path.write_bytes(data)
    credentials = grpc.ssl_channel_credentials(made.certificate_pem)
    options = ("--certificate", paths[0], "--key", paths[1])
    with served(tmp_path / "store", *options) as (_, address), grpc.secure_channel(address, credentials) as channel:
        assert send(channel, "orders", b"one").code == Code.OK
    shown = run("serve", tmp_path / "store", "--port", 0, "--certificate", paths[0], "--key", tmp_path / "none", code=3)
    assert "cannot be read" in shown.errors


def test_json_has_the_address_and_the_rates(tmp_path: Path) -> None:
    child = process("serve", tmp_path / "store", "--port", 0, "--json")
    assert child.stdout is not None
    lines = map(json.loads, child.stdout)
    address = next(lines)["address"]
    with grpc.insecure_channel(address) as channel:
        assert send(channel, "orders", b"one").code == Code.OK
        rates = next(one for one in lines if one["calls_per_s"])
    assert list(rates["calls_per_s"]) == ["SendMessage"] and rates["failed"] == 0
    child.terminate()
    assert list(lines)[-1] == {"stopped": True}
    child.communicate(timeout=PATIENCE_S)


def test_options_of_topics_and_groups(tmp_path: Path) -> None:
    options = ("--queues", 2, "--fifo-group", "a", "--fifo-group", "b", "--max-attempts", 3)
    with served(tmp_path / "store", *options) as (child, address):
        with grpc.insecure_channel(address) as channel:
            assert send(channel, "orders", b"one").code == Code.OK
        child.terminate()
        child.wait(PATIENCE_S)
    with MessageStore.open(tmp_path / "store") as store:
        assert store.queues("orders") == [0, 1]
    with served(tmp_path / "store", "--no-create-topics") as (_, address), grpc.insecure_channel(address) as channel:
        assert send(channel, "typo", b"one").code == Code.TOPIC_NOT_FOUND
        assert send(channel, "orders", b"two").code == Code.OK


@pytest.mark.parametrize(
    "options", [("--certificate", "x"), ("--durability", "none"), ("--port", 70_000), ("--port", "x")]
)
def test_wrong_options_are_usage_errors(tmp_path: Path, options: tuple[object, ...]) -> None:
    run("serve", tmp_path / "store", *options, code=2)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("line", ["name", ":secret", "name:"])
def test_a_wrong_line_of_users_is_a_usage_error(tmp_path: Path, line: str) -> None:
    (tmp_path / "users").write_text(f"a:b\n{line}\n")
    shown = run("serve", tmp_path / "store", "--port", 0, "--users", tmp_path / "users", code=2)
    assert "line 2" in shown.output


@pytest.mark.parametrize("content", [b"", b"# nobody\n", b"a:\xff\n"])
def test_a_file_without_users_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "users").write_bytes(content)
    run("serve", tmp_path / "store", "--port", 0, "--users", tmp_path / "users", code=2)
    assert not (tmp_path / "store").exists()


def test_an_empty_path_is_a_usage_error_and_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ["serve", ""], ["serve", "new", "--users", ""], ["serve", "new", "--certificate", "", "--key", ""],
        ["verify", ""], ["append", "", "--topic", "orders"],
    ):  # fmt: skip
        shown = run(*arguments, code=2)
        assert "the path is empty" in " ".join(shown.output.split()), arguments
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--host", ""), 3, "cannot listen"),
        (("--host", "no.such.host.invalid"), 3, "cannot listen"),
        (("--queues", 65_537), 2, "queues"),
        (("--max-attempts", 1 << 31), 2, "max_attempts"),
        (("--fifo-group", ""), 2, "blank"),
        (("--fifo-group", "two words"), 2, "illegal characters"),
        (("--certificate", __file__, "--key", __file__), 3, "cannot be used"),
        (("--metrics-host", "0.0.0.0"), 2, "--metrics-port"),
        (("--port", 4711, "--metrics-port", 4711), 2, "both 4711"),
    ],
)
def test_what_cannot_be_served_is_said_before_a_store_is_made(
    tmp_path: Path, options: tuple[object, ...], code: int, says: str
) -> None:
    shown = run("serve", tmp_path / "store", "--port", 0, *options, code=code)
    assert says in " ".join(shown.output.split())
    assert not (tmp_path / "store").exists()


def test_a_port_in_use_is_said_before_a_store_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        shown = run("serve", tmp_path / "store", "--port", taken.getsockname()[1], code=3)
    assert "listens on 127.0.0.1 port" in " ".join(shown.errors.split())
    assert not (tmp_path / "store").exists()


def test_a_terminal_shows_a_line_of_rates(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "stratalog.console", "serve", str(tmp_path / "store"), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs) as child:
        os.close(theirs)
        assert child.stdout is not None
        address = child.stdout.readline().split()[1].decode()
        shown = b""
        with grpc.insecure_channel(address) as channel:
            assert send(channel, "orders", b"one").code == Code.OK
            while b"1 connection: SendMessage " not in shown:
                shown += os.read(ours, 1000)
            while b"1 connection: no calls; 0 failed" not in shown:
                shown += os.read(ours, 1000)
        child.terminate()
        assert child.stdout.read() == b"stopped\n"
    os.close(ours)
    assert child.returncode == 0
