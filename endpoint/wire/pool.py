"""Message classes out of a table of field numbers, in a pool of their own.

Protobuf's default pool takes a name once: a program that has generated classes of the same messages, as every official
client has, could not import ours beside them. A pool of our own does not see theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "bool": _FIELD.TYPE_BOOL,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "float": _FIELD.TYPE_FLOAT,
    "double": _FIELD.TYPE_DOUBLE,
    "enum": _FIELD.TYPE_INT32,  # the same bytes; the names of the numbers are in Python
}
_WELL_KNOWN: Final = {
    "Timestamp": (".google.protobuf.Timestamp", timestamp_pb2.DESCRIPTOR),
    "Duration": (".google.protobuf.Duration", duration_pb2.DESCRIPTOR),
}


def message_classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """Make the classes of a package's messages.

    Args:
        package: its name, as "apache.rocketmq.v2".
        messages: for each message its fields, "1 name string, 2 sizes int32*, 3 note string?, 4 left Other@side". A
            type is a scalar of protobuf, "enum", "texts" (a map of text to text), "Timestamp", "Duration", or another
            message of the table. After it `?`: its presence counts; `*`: a list; `@one`: a member of the choice `one`.

    Returns: the classes by name.
    """
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name=f"stratalog/{package}", package=package, syntax="proto3")
    for _, known in _WELL_KNOWN.values():
        pool.AddSerializedFile(known.serialized_pb)
        file.dependency.append(known.name)
    for name, fields in messages.items():
        _add_message(file.message_type.add(name=name), package, fields)
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_message(message: Any, package: str, fields: str) -> None:
    presences = []
    for text in filter(None, fields.split(",")):
        number, name, kind = text.split()
        field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
        kind, _, choice = kind.partition("@")
        if choice:
            field.oneof_index = _choice(message, choice)
        if kind.endswith("*"):
            field.label = _FIELD.LABEL_REPEATED
        if kind.endswith("?"):
            presences.append(field)
        _set_type(message, field, package, kind.rstrip("*?"))
    for field in presences:  # their choices of one come after all others, as protobuf demands
        field.proto3_optional = True
        field.oneof_index = _choice(message, f"_{field.name}")


def _choice(message: Any, name: str) -> int:
    names = [choice.name for choice in message.oneof_decl]
    if name not in names:
        message.oneof_decl.add(name=name)
        names.append(name)
    return names.index(name)


def _set_type(message: Any, field: Any, package: str, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "texts":
        entry = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = _WELL_KNOWN[kind][0] if kind in _WELL_KNOWN else f".{package}.{kind}"
