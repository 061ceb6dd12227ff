"""The log: when an append is answered, and what a segment and a frame are made of."""

from __future__ import annotations

from stratalog import StoreConfig
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FINE_BLOCK_BYTES,
    FRAME_HEADER_BYTES,
    LEAST_MESSAGE_BYTES,
    MAX_FRAME_MESSAGES,
)

from .svg import AMBER_SOFT, GREY_SOFT, RED, SOFT, TEAL, TEAL_SOFT, Sheet

MIB = 1 << 20


def answers() -> str:
    """When an append is answered with each durability, and what a power cut takes."""
    every_ms = StoreConfig().flush_interval_ms
    assert StoreConfig().durability == "force"  # the first row says that it is the default
    sheet = Sheet(560, 330, "When an append is answered, and what a power cut may take")
    left, right, cut_ms = 20, 540, int(2.6 * every_ms)
    scale = (right - left) / (3 * every_ms)
    cut = left + cut_ms * scale
    sheet.words(left, 26, 'durability="force", the default', bold=True)
    sheet.words(left, 46, "write and force, then the answer: the answer is the promise", size=13, fill=SOFT)
    step, force = every_ms * 0.3, every_ms * 0.2
    for number in range(int(cut_ms / step)):
        start = left + number * step * scale
        sheet.box(start, 58, force * scale, 22, TEAL_SOFT)
        sheet.dot(start + force * scale, 69)
    sheet.words(left, 150, 'durability="os"', bold=True)
    sheet.words(
        left, 170, f"write, then the answer; a force each {every_ms:,} ms (flush_interval_ms)", size=13, fill=SOFT
    )
    forced = cut_ms // every_ms * every_ms
    sheet.box(left + forced * scale, 180, cut - left - forced * scale, 26, AMBER_SOFT)
    for number in range(int(cut_ms / (every_ms * 0.15))):
        sheet.dot(left + (number + 0.5) * every_ms * 0.15 * scale, 193, radius=4)
    for number in range(1, cut_ms // every_ms + 1):
        at = left + number * every_ms * scale
        sheet.line([(at, 178), (at, 208)], stroke=TEAL, width=3)
    sheet.words(cut - 4, 224, "answered, and perhaps lost", size=13, fill=RED, at="end")
    sheet.line([(cut, 54), (cut, 240)], stroke=RED, width=2, dashed=True)
    sheet.words(cut + 6, 110, "power cut", size=13, fill=RED)
    sheet.arrow((left, 256), (right, 256))
    for number in range(4):
        at = left + number * every_ms * scale
        sheet.line([(at, 252), (at, 260)])
        end = ("start", "middle", "middle", "end")[number]
        sheet.words(at, 274, f"{number * every_ms:,} ms", size=12, fill=SOFT, at=end)
    sheet.dot(left + 6, 304)
    sheet.words(left + 18, 309, "answer", size=13)
    sheet.box(left + 84, 296, 24, 16, TEAL_SOFT)
    sheet.words(left + 114, 309, "write and force", size=13)
    sheet.line([(left + 232, 296), (left + 232, 312)], stroke=TEAL, width=3)
    sheet.words(left + 240, 309, "force", size=13)
    return sheet.text()


def segment() -> str:
    """What lies where in a segment, and in a frame of it."""
    sheet = Sheet(560, 330, "A segment, and one of its frames")
    size_mib = StoreConfig().segment_bytes // MIB
    sheet.words(20, 26, f"a segment: a pre-written file, {size_mib} MiB when it is a full one", bold=True)
    parts = [
        (64, "header", GREY_SOFT), (64, "seal", GREY_SOFT), (112, "frame", TEAL_SOFT), (96, "frame", TEAL_SOFT),
        (80, "frame ..", TEAL_SOFT), (104, "footer", AMBER_SOFT),
    ]  # fmt: skip
    at = 20.0
    for width, name, fill in parts:
        sheet.box(at, 40, width, 40, fill)
        sheet.words(at + width / 2, 65, name, size=13, at="middle")
        at += width
    for x, text in ((20, "0"), (84, f"{BLOCK_BYTES:,}"), (148, f"{DATA_START:,}")):
        sheet.words(x, 97, text, size=12, fill=SOFT)
    sheet.words(at, 97, "at a block, once sealed", size=12, fill=SOFT, at="end")
    sheet.line([(148, 102), (20, 150)], dashed=True)
    sheet.line([(260, 102), (540, 150)], dashed=True)
    sheet.words(280, 140, "a frame: one batch, one write", bold=True, at="middle")
    columns = [
        (92, "header", f"{FRAME_HEADER_BYTES} B", GREY_SOFT), (56, "stream", "2 B", TEAL_SOFT),
        (56, "length", "2 B", TEAL_SOFT), (56, "offset", "2 B", TEAL_SOFT), (76, "checksum", "4 B", TEAL_SOFT),
        (184, "payloads, back to back", "", AMBER_SOFT),
    ]  # fmt: skip
    assert LEAST_MESSAGE_BYTES == 2 + 2 + 2 + 4  # a row of these columns
    at = 20.0
    for width, name, size, fill in columns:
        sheet.box(at, 154, width, 46, fill)
        sheet.words(at + width / 2, 174 if size else 182, name, size=12, at="middle")
        sheet.words(at + width / 2, 191, size, size=12, fill=SOFT, at="middle")
        at += width
    notes = [
        f"a column has a row for each message: {LEAST_MESSAGE_BYTES} bytes in all, for up to {MAX_FRAME_MESSAGES:,}",
        "the header has the checksum of the frame before: a chain that shows a torn end",
        f"then zeros up to a block: {BLOCK_BYTES:,} bytes, or {FINE_BLOCK_BYTES} where the device allows it",
        "times, keys and properties have columns of their own, in frames that need them",
    ]
    for number, text in enumerate(notes):
        sheet.words(20, 232 + 24 * number, text, size=12)
    return sheet.text()
