"""The memory plan, as a bar."""

from __future__ import annotations

from stratalog.cache.plan import plan_memory

from .svg import AMBER_SOFT, GREY_SOFT, LINE, SOFT, TEAL_SOFT, Sheet

MIB = 1 << 20
LIMIT_MIB = 1024


def plan() -> str:
    """What one number, `memory_limit_bytes`, becomes."""
    sizes = plan_memory(LIMIT_MIB * MIB)
    parts = [
        ("left for the system's page cache", sizes.page_cache_bytes, GREY_SOFT),
        ("objects, columns, buffers of work", sizes.working_bytes - sizes.delayed_index_bytes, GREY_SOFT),
        ("indexes of delayed messages", sizes.delayed_index_bytes, AMBER_SOFT),
        ("appends that are not durable yet", sizes.publish_buffer_bytes, AMBER_SOFT),
        ("the ring: the newest frames", sizes.write_cache_bytes, TEAL_SOFT),
        ("tiers (without a cache: the ring's, too)", sizes.tail_cache_bytes, TEAL_SOFT),
        ("a read cache, off by default", sizes.read_cache_bytes, GREY_SOFT),
        ("heads and footers of sealed segments", sizes.index_cache_bytes, AMBER_SOFT),
    ]
    row, top = 30, 62
    sheet = Sheet(560, top + row * len(parts) + 20, "The memory plan")
    sheet.words(20, 28, f"memory_limit_bytes = {LIMIT_MIB:,} MiB", bold=True)
    sheet.words(20, 48, "each bar is as long as its share", size=13, fill=SOFT)
    most = max(size for _, size, _ in parts)
    for number, (name, size, fill) in enumerate(parts):
        y = top + row * number
        sheet.box(20, y, max(180 * size / most, 2), 20, fill, edge=LINE)
        sheet.words(266, y + 15, f"{size / MIB:,.0f} MiB", size=13, at="end")
        sheet.words(276, y + 15, name, size=13)
    return sheet.text()
