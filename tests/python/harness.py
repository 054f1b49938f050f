"""What the tests against PyTorch's CPU share: the device under test, its modes, no fallback.

``TEST_DEVICE=cpu`` puts the CPU in the device's place, to test the tests themselves.
"""

import contextlib
import os
from collections.abc import Iterator

import torch

DEVICE = os.environ.get("TEST_DEVICE", "tpu")
MODES = ("strict", "debug", "defer_and_fuse") if DEVICE == "tpu" else ("strict",)
# For tests where debug adds nothing: it is strict and a wait.
TWO_MODES = ("strict", "defer_and_fuse") if DEVICE == "tpu" else ("strict",)


def mode(name: str) -> contextlib.AbstractContextManager:
    """The device in the named mode."""
    if DEVICE != "tpu":
        return contextlib.nullcontext()
    return torch.tpu.set_eager_mode(name)


def fallbacks() -> dict[str, int]:
    """Calls that ran on the CPU so far: overload → count."""
    return dict(torch.tpu.fallbacks()) if DEVICE == "tpu" else {}


def new_fallbacks(before: dict[str, int]) -> dict[str, int]:
    """Those since `before`, which `fallbacks()` gave."""
    return {op: n - before.get(op, 0) for op, n in fallbacks().items() if n > before.get(op, 0)}


@contextlib.contextmanager
def no_fallback() -> Iterator[None]:
    """Fails if an op inside ran on the CPU."""
    before = fallbacks()
    yield
    assert not new_fallbacks(before), f"ran on the CPU: {new_fallbacks(before)}"


def same(got, want) -> None:
    """Raises AssertionError unless two tensors agree in values, bit for bit, shape and dtype."""
    assert got.dtype == want.dtype and got.shape == want.shape
    got, want = got.cpu().resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg()
    got, want = (t.clone(memory_format=torch.contiguous_format).view(-1) for t in (got, want))
    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), f"{got}\nnot\n{want}"


def grid(device: str) -> torch.Tensor:
    """The 3x4 tensor that most tests share, so that they share programs too."""
    return torch.arange(12.0).reshape(3, 4).to(device)
