"""The environment variables that the Python side reads."""

import glob
import importlib.util
import os

MODES = ("strict", "debug", "defer_and_fuse")


def eager_mode() -> str:
    """The mode that the environment asks for; strict if it doesn't.

    ``TORCHTPU_MODE`` decides; else ``TORCH_TPU_LAUNCH_BLOCKING=1`` is debug and
    ``TORCH_TPU_DEFER_AND_FUSE=1`` is defer_and_fuse. Raises ValueError for an unknown mode.
    """
    named = os.environ.get("TORCHTPU_MODE")
    if named:
        if named not in MODES:
            raise ValueError(f"TORCHTPU_MODE={named!r} isn't a mode; modes are {', '.join(MODES)}")
        return named
    if _flag("TORCH_TPU_LAUNCH_BLOCKING"):
        return "debug"
    return "defer_and_fuse" if _flag("TORCH_TPU_DEFER_AND_FUSE") else "strict"


def _flag(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false")


def plugin_paths() -> tuple[str | None, str | None]:
    """Where the plugins of installed packages are: (XLA:CPU, libtpu).

    libtpu counts only where there is a TPU. Nothing is loaded.
    """
    cpu = _library("xla_plugins.xla_cpu_pjrt", "xla_cpu_pjrt.so")
    tpu = _library("libtpu", "libtpu.so") if _has_tpu() else None
    return cpu, tpu


def _library(package: str, name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = os.path.join(place, name)
        if os.path.isfile(path):
            return path
    return None


def _has_tpu() -> bool:
    return bool(glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*"))
