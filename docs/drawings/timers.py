"""A timing wheel at one moment, asked where its timers are."""

from __future__ import annotations

from stratalog.index import TimingWheel

from .svg import AMBER_SOFT, GREY_SOFT, PAPER, SOFT, TEAL, Sheet

SIZE, NOW, TICKS = 4, 9, (11, 13, 40)


def wheels() -> str:
    """Three timers in wheels of four buckets, at tick 9."""
    wheel = TimingWheel(tick_ms=1, wheel_size=SIZE)
    wheel.advance(NOW)
    for tick in TICKS:
        wheel.add(tick, f"tick {tick}")
    levels = wheel._levels
    sheet = Sheet(560, 60 + 96 * len(levels.wheels), "Timing wheels: which bucket holds which timer")
    ticks = ", ".join(map(str, TICKS))
    sheet.words(20, 28, f"{SIZE} buckets a wheel, at tick {NOW}; timers for the ticks {ticks}", bold=True)
    for number, one in enumerate(levels.wheels):
        y = 50 + 96 * number
        first = one.turn * one.span
        sheet.words(20, y + 24, f"wheel {number}", size=14, bold=True)
        each = "1 tick a bucket" if one.width == 1 else f"{one.width} ticks a bucket"
        sheet.words(20, y + 42, each, size=12, fill=SOFT)
        for place in range(one.size):
            begin = first + place * one.width
            end = begin + one.width - 1
            x = 132 + 102 * place
            is_now, is_past = begin <= NOW <= end, end < NOW
            sheet.box(x, y, 98, 34, AMBER_SOFT if is_now else GREY_SOFT if is_past else PAPER)
            sheet.words(x + 49, y + 22, str(begin) if one.width == 1 else f"{begin} .. {end}", size=13, at="middle")
            if is_now:
                sheet.words(x + 49, y + 50, "now", size=12, fill=SOFT, at="middle")
            for timer in one.buckets[place].timers:
                sheet.dot(x + 30, y + 46)
                sheet.words(x + 40, y + 51, str(timer.payload), size=13, fill=TEAL)
                if one.width > 1:
                    sheet.words(x + 49, y + 68, f"moves down at {begin}", size=11, fill=SOFT, at="middle")
    return sheet.text()
