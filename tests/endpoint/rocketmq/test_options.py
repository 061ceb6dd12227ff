"""What an endpoint is given: wrong values are refused when it is made, with a sentence, and it is not started."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.endpoint import AddressUnusable, Certificate, CertificateUnusable, RocketMQEndpoint


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("queues", (0, 65_537, 2.5, "4", True, None)),
        ("max_attempts", (0, 1 << 31)),
        ("receive_batch_size", (0, 1025)),
        ("long_polling_ms", (999, 3_600_001)),
        ("max_body_bytes", (0, 1 << 31)),
        ("check_first_ms", (0, 1 << 41)),
        ("check_interval_ms", (0, 1 << 41)),
        ("max_checks", (0, 1 << 31)),
        ("retry_delays_ms", ([], [-1], [1 << 41], ["1"], [0] * 1001, "12", 5, None)),
        ("fifo_groups", ("name", [""], ["two words"], ["é"], ["x" * 128], [3], None)),
        ("create_topics", (0, "no", None)),
        ("deduplicate", (0, "no", None)),
        ("users", ({1: "s"}, {"u": 1}, {"": "s"}, {"u": ""}, 5, ["u"])),
    ],
)
def test_wrong_values_are_refused_with_the_name_of_the_option(
    store: MessageStore, name: str, values: tuple[object, ...]
) -> None:
    for value in values:
        given: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=name):
            RocketMQEndpoint(store, **given)


@pytest.mark.parametrize("tls", [False, True, "none", b"pem"])
def test_tls_is_self_signed_a_certificate_or_none(store: MessageStore, tls: Any) -> None:
    with pytest.raises(ValueError, match="tls is"), RocketMQEndpoint(store, tls=tls):
        pass


@pytest.mark.parametrize(
    "place", [{"host": ""}, {"host": None}, {"host": "a\0b"}, {"port": "x"}, {"port": None}, {"port": True}]
)
def test_a_place_that_is_none_is_unusable(store: MessageStore, place: dict[str, Any]) -> None:
    with pytest.raises(AddressUnusable), RocketMQEndpoint(store, **place):
        pass


def test_a_certificate_is_bytes() -> None:
    texts: Any = ("certificate", "key")
    with pytest.raises(CertificateUnusable, match="bytes"):
        Certificate(*texts)
