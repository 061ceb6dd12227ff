"""Stores that an earlier version wrote open for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore, verify_folder

from .kept import CONFIG, NAMES, differences, expected, unpack


@pytest.mark.parametrize("name", NAMES)
def test_kept_store_opens_with_all_its_messages(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path / "kept")
    for _ in range(2):
        with MessageStore.open(folder, CONFIG) as store:
            assert differences(store) == []
            assert store.losses == []


@pytest.mark.parametrize("name", NAMES)
def test_kept_store_is_verified_and_gone_on_with(name: str, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path / "kept")
    assert verify_folder(folder).damages == []
    with MessageStore.open(folder, CONFIG) as store:
        for (topic, queue_id), rows in expected().items():
            assert store.append(topic, queue_id, b"later") == len(rows)
    with MessageStore.open(folder, CONFIG) as store:
        for (topic, queue_id), rows in expected().items():
            assert store.read(topic, queue_id, len(rows))[0].data == b"later"
