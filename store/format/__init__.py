"""The format on disk: layout, frames, footers.

Begin with the text at the top of `layout`.

    a batch             frame, joint, column_frame, rows, blobs, extras, dues, arrays
    a segment           footer, footer_data, stored_column
    a folder            store_files
    records in the log  records, applied, commit_names, hidden, cursors, delays, copies, topic_settings
    message ids         message_ids
    bulk commits        shard
    other processes     live_page, mirror, figures_page
"""
