"""Fixtures that the tests share: a mode to run in, Python programs in their own process."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import harness
import pytest
import torch

TPU_ONLY = (
    "test_import.py",
    "test_modes.py",
    "test_modules.py",
    "test_tensors.py",
    "test_errors.py",
    "test_cache.py",
    "test_random.py",
    "test_data.py",
)
# Tests compile what they test, and leave the user's cache alone; those of the cache name a folder.
os.environ["TORCHTPU_CACHE"] = "off"
# With the CPU in the device's place there is no device module, and no modes, to test.
collect_ignore = list(TPU_ONLY) if harness.DEVICE != "tpu" else []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "falls_back(op, ...): ops that may run on the CPU here")


@pytest.fixture(params=harness.MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once in each mode, and leaves no failure behind for the next."""
    with harness.mode(request.param):
        yield request.param
    torch.tpu.synchronize()


@pytest.fixture
def native(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing in the test may need the CPU, but for the op that a test is marked with."""
    before = harness.fallbacks()
    yield
    marker = request.node.get_closest_marker("falls_back")
    assert set(harness.new_fallbacks(before)) <= set(marker.args if marker else ())


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess]:
    """Runs a program in a process of its own, in which no setting of this one holds.

    `settings` are environment variables; `ok` is whether it must succeed.
    """

    def run(program: str, ok: bool = True, **settings: str) -> subprocess.CompletedProcess:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHTPU", "TORCH_"))}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=kept | {"TORCHTPU_CACHE": "off"} | settings,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode == 0) == ok, f"{done.returncode}: {done.stdout}\n{done.stderr}"
        return done

    return run
