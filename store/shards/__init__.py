"""Bulk data on its way into a store: shards are staged, committed and attached to the log. See `format.shard`.

Begin with `staging`, the content of the folder `incoming`, and `attacher`, which brings it into the log.

    staging             writer, staging, committing, question
    attaching           attacher, parts, lane_attach, lane_build, log_end, record_segment, rewriting
    a small commit      loading
"""
