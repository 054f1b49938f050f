"""``torch.tpu``: the device module, with the names and meanings of ``torch.cuda``.

There is one device, ``tpu:0``, and one stream. The device is opened on first use.
"""

import sys
import types
from dataclasses import dataclass
from typing import Any

import torch

from deferandfuse import _core
from deferandfuse.tpu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from deferandfuse.tpu.modes import EagerMode, set_eager_mode
from deferandfuse.tpu.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from deferandfuse.tpu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "EagerMode",
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "fallbacks",
    "flush",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "native_ops",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "reset_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_eager_mode",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stats",
    "stream",
    "synchronize",
]


def _index(device: Any) -> int:
    """The index of a device argument; ValueError or RuntimeError if it isn't ``tpu:0``."""
    if device is None:
        return 0
    if isinstance(device, int):
        index = device
    else:
        device = torch.device(device)
        if device.type != "tpu":
            raise ValueError(f"expected a tpu device, but got {device}")
        index = 0 if device.index is None else device.index
    # torch.cuda's contexts take a negative index as "stay".
    if index > 0:
        raise RuntimeError(f"invalid device tpu:{index}: the only one is tpu:0")
    return 0


def is_available() -> bool:
    """Whether ops can be recorded for the device. It isn't opened to find out."""
    return not _is_in_bad_fork()


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    """Accepts ``tpu:0``, the only device."""
    _index(device)


class device:
    """Context manager that selects a device, as ``torch.cuda.device`` does."""

    def __init__(self, device: Any) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class device_of(device):
    """Context manager that selects the device of a tensor, if it is on one."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device if obj.device.type == "tpu" else None)


def init() -> None:
    """Opens the device now rather than on first use."""
    _lazy_init()
    _core.device_properties()


def _lazy_init() -> None:
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize tpu in a forked subprocess; use the 'spawn' start method"
        )


def _is_in_bad_fork() -> bool:
    return _core.in_bad_fork()


def is_initialized() -> bool:
    """Whether the device was opened."""
    return _core.is_open()


def synchronize(device: Any = None) -> None:
    """Flushes what is deferred and waits until the device is idle.

    Raises a failure that was deferred with it.
    """
    _index(device)
    _core.synchronize()


def flush() -> None:
    """Hands what is deferred to the device without waiting."""
    _core.flush()


@dataclass(frozen=True)
class DeviceProperties:
    """What the PJRT plugin tells of the device. ``total_memory`` is in bytes."""

    name: str
    description: str
    platform: str
    platform_version: str
    plugin: str
    pjrt_api_version: str
    device_count: int
    total_memory: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Plugin, platform and PJRT API version. Opens the device."""
    _index(device)
    told = _core.device_properties()
    return DeviceProperties(
        name=told.get("name", told["platform"]),
        description=told.get("description", ""),
        platform=told["platform"],
        platform_version=told["platform_version"],
        plugin=told["plugin"],
        pjrt_api_version=told["pjrt_api_version"],
        device_count=device_count(),
        total_memory=mem_get_info()[1],
    )


def get_device_name(device: Any = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The PJRT API version (major, minor): what an executable may ask of the plugin."""
    major, minor = get_device_properties(device).pjrt_api_version.split(".")[:2]
    return int(major), int(minor)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def fallbacks() -> dict[str, int]:
    """Calls that had no native kernel and ran on the CPU: functional overload → count."""
    return _core.fallbacks()


def stats() -> dict[str, Any]:
    """Counters and times (seconds) of the engine since the start or ``reset_stats()``."""
    return _core.stats()


def reset_stats() -> None:
    _core.reset_stats()


def native_ops() -> list[str]:
    """The functional overloads that run on the device."""
    return _core.native_ops()


class _TpuModule(types.ModuleType):
    """Lets ``torch.tpu.eager_mode`` be read and assigned."""

    # torch.utils.checkpoint keeps the random state only of a module that says so.
    @property
    def _initialized(self) -> bool:
        return _core.is_open() and not _is_in_bad_fork()

    @property
    def eager_mode(self) -> EagerMode:
        return EagerMode(_core.mode())

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode | str) -> None:
        set_eager_mode(mode)


sys.modules[__name__].__class__ = _TpuModule
