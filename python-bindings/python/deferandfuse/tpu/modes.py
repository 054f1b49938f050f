"""The three ways in which ops are run."""

from enum import Enum
from types import TracebackType

from deferandfuse import _core


class EagerMode(Enum):
    """When recorded ops are handed to the device. Results agree in all three."""

    STRICT = "strict"
    """Each op by itself, as it is called."""
    DEBUG = "debug"
    """As strict, and each call waits for its result: an error has the stack of its op."""
    DEFER_AND_FUSE = "defer_and_fuse"
    """Many at once, fused, when a value is read or a limit is reached."""

    DEFER_NEVER = "strict"
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "debug"

    @classmethod
    def _missing_(cls, value: object) -> "EagerMode | None":
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None


class set_eager_mode:
    """Sets the mode of the process; as a context manager, until the block ends.

    >>> torch.tpu.set_eager_mode("strict")
    >>> with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
    ...     train()

    Raises ValueError for an unknown mode.
    """

    def __init__(self, mode: EagerMode | str) -> None:
        try:
            self.mode = EagerMode(mode)
        except ValueError:
            modes = ", ".join(m.value for m in EagerMode)
            raise ValueError(f"{mode!r} isn't an eager mode; modes are {modes}") from None
        self.previous = EagerMode(_core.mode())
        _core.set_mode(self.mode.value)

    def __enter__(self) -> EagerMode:
        # Entered again, or some time after it was made.
        _core.set_mode(self.mode.value)
        return self.mode

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _core.set_mode(self.previous.value)
