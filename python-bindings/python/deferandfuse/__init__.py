"""PyTorch device ``tpu``: eager ops are deferred, fused and run through a PJRT plugin.

``import torch`` is enough: torch loads this package by its entry point. With
``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` it takes ``import deferandfuse``.
"""


def _autoload() -> None:
    """What torch calls at the end of ``import torch``."""
    from deferandfuse import _backend

    _backend.autoload()


# After `_autoload`: importing torch calls it, if this package is imported first.
import torch  # noqa: E402, F401

from deferandfuse import _backend  # noqa: E402

_backend.activate_on_import()
