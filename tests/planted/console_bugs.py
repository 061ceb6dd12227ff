"""Bugs of the console command."""

from __future__ import annotations

from .plant import Bug

APPEND = "tests/console/test_append.py"
FILES = "tests/console/test_files.py"
CHANGES = "tests/console/test_changes.py"
OPTIONS = "tests/console/test_options.py"

CONSOLE: dict[str, Bug] = {
    "console: a line in two pieces is two messages": Bug(
        "stratalog/console/appended.py", 'b"".join([*rest, head]).split', "head.split",
        (f"{APPEND}::test_many_lines_share_forces",),
    ),
    "console: lines wait for more lines": Bug(
        "stratalog/console/appended.py", "stream.read1(READ_BYTES)", "stream.read(READ_BYTES)",
        (f"{APPEND}::test_a_line_is_durable_while_the_next_one_has_not_come",), hangs=True,
    ),
    "console: rows before one that the store refuses are lost": Bug(
        "stratalog/console/appended.py", "                self._send(rows[:at])", "                pass",
        (f"{APPEND}::test_a_wrong_line_is_named_and_those_before_it_are_appended",),
    ),
    "console: lines before one that is wrong are lost": Bug(
        "stratalog/console/rows.py",
        "    except InvalidMessage:\n        if group:\n            yield group\n        raise\n",
        "    except InvalidMessage:\n        raise\n",
        (f"{APPEND}::test_a_wrong_line_is_named_and_those_before_it_are_appended",),
    ),
    "console: an unknown field is dropped": Bug(
        "stratalog/console/rows.py", "        if name not in FIELDS:", "        if False:",
        (f"{APPEND}::test_a_wrong_line_is_named_and_those_before_it_are_appended",),
    ),
    "console: an unknown column is dropped": Bug(
        "stratalog/console/files.py", "                if name not in COLUMNS:", "                if False:",
        (f"{FILES}::test_a_file_with_a_field_that_messages_do_not_have_is_refused_and_nothing_is_imported",),
    ),
    "console: an empty key becomes none": Bug(
        "stratalog/console/rows.py", "    key = defaults.key if key is None else key\n",
        "    key = key or defaults.key\n",
        (f"{FILES}::test_an_import_of_an_export_has_the_same_messages",),
    ),
    "console: a late delivery time is cut in Parquet": Bug(
        "stratalog/console/files.py", 'when = pa.timestamp("ms", tz="UTC")', 'when = pa.timestamp("s", tz="UTC")',
        (f"{FILES}::test_an_import_of_an_export_has_the_same_messages",),
    ),
    "console: an export that fails leaves a part of a file": Bug(
        "stratalog/console/files.py", "            part.unlink()", "            pass",
        (f"{FILES}::test_an_export_that_fails_leaves_no_file",),
    ),
    "console: a file is overwritten": Bug(
        "stratalog/console/files.py", "    if path.exists() and not path.is_char_device() and not path.is_fifo():",
        "    if False:", (f"{FILES}::test_a_file_that_is_there_or_cannot_be_written_is_refused",),
    ),
    "console: a command that changes a store makes one": Bug(
        "stratalog/console/changes.py",
        "    with suppress(StoreCorrupt):  # what an opening that writes says of it is the better sentence\n"
        "        StoreReader.open(folder).close()\n", "",
        (f"{CHANGES}::test_none_makes_a_store_of_a_folder",),
    ),
    "console: a seek makes a subscription": Bug(
        "stratalog/console/changes.py",
        "    complain(f\"the topic {topic!r} has no subscription {name!r}\")\n    raise typer.Exit(NOT_THERE)\n",
        "    store.subscribe(topic, name).close()\n    return subscription_of(store, topic, name)\n",
        (f"{CHANGES}::test_a_wrong_seek_changes_nothing_and_makes_no_subscription",),
    ),
    "console: a topic without so many messages stops a trim": Bug(
        "stratalog/console/changes.py", "keep = keep if queue_id is not None else min(keep, end)", "keep = keep",
        (f"{CHANGES}::test_a_topic_is_trimmed_before_a_time_or_an_offset",),
    ),
    "console: a time without a zone is UTC": Bug(
        "stratalog/console/times.py", "int(datetime.fromisoformat(text).timestamp() * 1000)",
        "int(datetime.fromisoformat(text).replace(tzinfo=__import__('datetime').UTC).timestamp() * 1000)",
        (f"{OPTIONS}::test_times_are_local_unless_they_name_a_zone",),
    ),
    "console: a time before now is one after it": Bug(
        "stratalog/console/times.py", "int(f\"{text[0]}1\") * _length_ms(text[1:])", "_length_ms(text[1:])",
        (f"{OPTIONS}::test_times_are_relative_to_now",),
    ),
    "console: messages after the end of a time span are printed": Bug(
        "stratalog/console/messages.py", "min(end, store.offset_at(*name, self.until_ms))", "end",
        (f"{OPTIONS}::test_cat_ends_before_a_time",),
    ),
    "console: the newest messages are those of the last queue": Bug(
        "stratalog/console/messages.py", "    return message.timestamp_ms, message.topic,",
        "    return 0, message.topic,",
        (f"{OPTIONS}::test_tail_prints_the_newest_in_the_order_of_their_times",),
    ),
    "console: tail -f prints the past again": Bug(
        "stratalog/console/app.py", "messages_to_come(store, wanted, ends, lines.flush)",
        "messages_to_come(store, wanted, {}, lines.flush)",
        (f"{OPTIONS}::test_tail_follows_from_the_newest_on",),
    ),
    "console: --json of cat takes the folder for its file": Bug(
        "perf/commands/json_option.py", "takes_next=command not in self.without_file", "takes_next=True",
        (f"{OPTIONS}::test_json_of_commands_that_print_messages_never_takes_the_next_argument",),
    ),
    "console: --json alone needs a file": Bug(
        "perf/commands/json_option.py", 'f"{JSON}=-" if one == JSON and not has_file else one', "one",
        (f"{OPTIONS}::test_json_alone_prints_json_and_nothing_else",),
    ),
}  # fmt: skip
