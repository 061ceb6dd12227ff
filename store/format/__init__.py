"""The format on disk: layout, frames, footers.

Begin with the text at the top of `layout`.

    a batch             frame, column_frame, blobs, extras
    a segment           footer
    a folder            store_files
    records in the log  records, applied, hidden, cursors, delays, copies
    bulk commits        shard, note
    other processes     live_page, mirror
"""
