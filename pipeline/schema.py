"""The columns of the data source, as Spark and as Arrow name them."""

from __future__ import annotations

SCHEMA = (
    "topic string, queue_id int, offset bigint, timestamp timestamp, deliver_at timestamp, key binary, "
    "properties map<string,string>, data binary, store string"
)
