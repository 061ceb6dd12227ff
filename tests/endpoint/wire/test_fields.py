"""Our messages are those of the official client: the same numbers, names, kinds and presences."""

from __future__ import annotations

from typing import Any

import pytest
from rocketmq.grpc_protocol import definition_pb2, service_pb2

from stratalog.endpoint.wire import CLASSES, Code, codes

OFFICIAL = {
    name: descriptor
    for module in (definition_pb2, service_pb2)
    for name, descriptor in module.DESCRIPTOR.message_types_by_name.items()
}
OURS_ALONE = {name for name in CLASSES if name not in OFFICIAL}  # of the Admin service


def fields_of(descriptor: Any) -> dict[int, tuple[Any, ...]]:
    """By number what a field is. An enum is a number to us."""
    return {
        field.number: (
            field.name,
            {field.TYPE_ENUM: field.TYPE_INT32}.get(field.type, field.type),
            field.message_type.name if field.message_type else "",
            field.is_repeated,
            field.has_presence,
            field.containing_oneof.name if field.containing_oneof else "",
        )
        for field in descriptor.fields
    }


@pytest.mark.parametrize("name", sorted(set(CLASSES) - OURS_ALONE))
def test_a_message_has_the_fields_of_the_official_one(name: str) -> None:
    ours, official = fields_of(CLASSES[name].DESCRIPTOR), fields_of(OFFICIAL[name])
    assert ours == {number: official[number] for number in ours}
    assert set(official) == set(ours)


def test_all_messages_of_the_calls_are_there() -> None:
    unused = ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")
    assert {name for name in OFFICIAL if not name.startswith(unused)} <= set(CLASSES)


@pytest.mark.parametrize("ours", [codes.Code, codes.MessageType, codes.ClientType, codes.Language, codes.FilterType,
                                  codes.Permission, codes.Encoding, codes.DigestType])  # fmt: skip
def test_the_numbers_have_the_official_names(ours: Any) -> None:
    official = dict(definition_pb2.DESCRIPTOR.enum_types_by_name[ours.__name__].values_by_name.items())
    assert {name: official[name].number for name in ours.__members__} == {one.name: one.value for one in ours}


def test_messages_of_both_pools_are_used_side_by_side() -> None:
    ours = CLASSES["Status"](code=Code.OK, message="fine")
    official = definition_pb2.Status.FromString(ours.SerializeToString())
    assert (official.code, official.message) == (20000, "fine")
