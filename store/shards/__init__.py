"""Bulk data on its way into a store: shards are staged, committed and attached to the log. See `format.shard`."""
