"""Device memory, in bytes, from the engine's own ledger of live buffers."""

import os
from typing import Any

from deferandfuse import _core


def memory_allocated(device: Any = None) -> int:
    """Bytes in live device buffers. What is deferred has no buffer yet."""
    return _core.memory_stats()["current"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes live at once since the start or ``reset_peak_memory_stats()``, executables'
    temporaries included."""
    return _core.memory_stats()["peak_with_temporaries"]


def memory_reserved(device: Any = None) -> int:
    """As ``memory_allocated``: freed memory goes back to the plugin at once."""
    return memory_allocated(device)


def max_memory_reserved(device: Any = None) -> int:
    return max_memory_allocated(device)


def memory_stats(device: Any = None) -> dict[str, int]:
    """``torch.cuda.memory_stats``'s keys, as far as they have a meaning here."""
    told = _core.memory_stats()
    stats = {}
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        stats[f"{kind}.all.current"] = told["current"]
        stats[f"{kind}.all.peak"] = told["peak_with_temporaries"]
    # Without the scratch memory of running executables.
    stats["buffer_bytes.all.peak"] = told["peak"]
    stats["allocation.all.allocated"] = told["allocations"]
    return stats


def reset_peak_memory_stats(device: Any = None) -> None:
    _core.reset_peak_memory_stats()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Nothing accumulates but the peak."""


def empty_cache() -> None:
    """Nothing is cached: freed memory goes back to the plugin at once."""


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes: the device's limit if the plugin tells one, else the host's memory."""
    limit = _core.device_properties().get("bytes_limit")
    if limit:
        return max(limit - memory_allocated(), 0), limit
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
