"""Streams and events. The device has one stream, so work is in program order."""

from typing import Any

import torch


class Stream(torch.Stream):
    """The device's only stream; a new one is the same one."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device="tpu" if device is None else device, priority=priority)


class _TpuEvents(type):
    def __instancecheck__(cls, obj: object) -> bool:
        return type(obj) is torch.Event and obj.device.type == "tpu"


class Event(torch.Event, metaclass=_TpuEvents):
    """A point in the program order.

    Recording one flushes what is deferred. With ``enable_timing`` it also waits for the device
    and takes the host's clock, so that ``elapsed_time`` (milliseconds) measures finished work;
    that makes it a barrier. ``query()`` waits and is True.
    """

    # torch compares only events that are exactly torch.Event, so that is what this makes.
    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event("tpu", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Any = None) -> Stream:
    return Stream(device)


def default_stream(device: Any = None) -> Stream:
    return Stream(device)


class StreamContext:
    """Context manager that selects a stream: there is but one."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: torch.Stream) -> None:
    """Accepts the only stream there is."""
