"""Makes ``tpu`` a device of torch, once."""

import atexit
import os
import sys
import warnings
from importlib.metadata import entry_points

import torch

from deferandfuse import _abi, _env

_NAME = "tpu"
_UNNAMED = "privateuseone"
_active = False


def autoload() -> None:
    """Registers the device unless another package provides it; says so if one does.

    Raises ImportError if the user chose this package where the other one can't be kept out.
    """
    if not _active and (rival := _rival()):
        choice = os.environ.get("TORCHTPU_BACKEND")
        if choice == "deferandfuse":
            raise ImportError(_conflict(rival))
        if choice != rival.replace("-", "_"):
            warnings.warn(_conflict(rival), stacklevel=2)
        return
    activate()


def activate_on_import() -> None:
    """On ``import deferandfuse``: with autoload it was, or will be, done by torch."""
    autoloads = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1"
    if not autoloads:
        activate()


def activate() -> None:
    """Registers the device. Raises ImportError if the name is taken or torch doesn't fit."""
    global _active
    if _active:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken != _UNNAMED:
        raise ImportError(_taken(taken))
    _abi.check(torch.__version__)
    from deferandfuse import _core

    mode = _env.eager_mode()
    torch.utils.rename_privateuse1_backend(_NAME)
    _core.init_shim()
    _core.set_plugin_paths(*_env.plugin_paths())
    _core.set_mode(mode)
    from deferandfuse import tpu

    torch._register_device_module(_NAME, tpu)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_storage=True,
        unsupported_dtype=[torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8],
    )
    _print_from_host()
    # Else the last program of a short script would never get onto disk.
    atexit.register(_core.finish_writing)
    _active = True


def _rival() -> str | None:
    """Another distribution that provides device tpu to torch, or has taken it already."""
    for entry in entry_points(group="torch.backends"):
        package = entry.value.partition(":")[0].partition(".")[0]
        if package != "deferandfuse" and "tpu" in f"{entry.name} {package}".lower():
            return entry.dist.name if entry.dist else package
    taken = torch._C._get_privateuse1_backend_name()
    return _holder() if taken == _NAME else None


def _holder() -> str:
    module = sys.modules.get(f"torch.{_NAME}")
    return getattr(module, "__name__", "another package").partition(".")[0]


def _choices(rival: str) -> str:
    module = rival.replace("-", "_")
    return (
        f"To use {rival}, set TORCHTPU_BACKEND={module}, which also silences this message. "
        f"To use deferandfuse, uninstall {rival}, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and "
        "import deferandfuse in the program."
    )


def _conflict(rival: str) -> str:
    return (
        f"{rival} and deferandfuse both provide device '{_NAME}' to torch: deferandfuse leaves it "
        f"to {rival}. {_choices(rival)}"
    )


def _taken(name: str) -> str:
    if name == _NAME:
        return f"device '{_NAME}' was taken by {_holder()} in this process. {_choices(_holder())}"
    return (
        "deferandfuse can't register device 'tpu': torch has one place for an out-of-tree device "
        f"and another package named it '{name}' in this process. Set "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import only the package you want."
    )


def _print_from_host() -> None:
    """Prints a tensor by reading it once: torch's formatter would run a dozen ops on it."""
    from torch import _tensor_str

    on_device = _tensor_str._tensor_str

    def on_host(self: torch.Tensor, indent: int) -> str:
        return on_device(self.cpu() if self.device.type == _NAME else self, indent)

    _tensor_str._tensor_str = on_host
