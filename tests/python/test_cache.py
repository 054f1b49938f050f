"""The disk cache: what one process compiled, the next one loads."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

# Training steps with donated parameters and random numbers.
PROGRAM = """
    import json, torch
    torch.manual_seed(0)
    torch.tpu.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 4)
    ).to("tpu")
    x = torch.randn(16, 32).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
    results = [loss.item().hex(), *(p.sum().item().hex() for p in model.parameters())]
    stats = torch.tpu.stats()
    print(json.dumps({
        "results": results,
        "regions": stats["regions_compiled"],
        "compile_seconds": stats["compile_seconds"],
        "disk": stats["disk_cache"],
    }))
"""


@pytest.fixture
def report(run_python: Callable, tmp_path: Path) -> Callable[..., tuple[dict, str]]:
    """Runs the program; what it printed, and what stands on its stderr."""

    def run(**settings: str) -> tuple[dict, str]:
        folder = {"TORCHTPU_CACHE": "on", "TORCHTPU_CACHE_DIR": str(tmp_path / "cache")}
        done = run_python(PROGRAM, **folder | settings)
        return json.loads(done.stdout), done.stderr

    return run


@pytest.mark.parametrize("mode", ["strict", "defer_and_fuse"])
def test_a_second_process_compiles_nothing(report: Callable, mode: str) -> None:
    cold, _ = report(TORCHTPU_MODE=mode)
    # Two regions may be the same module, the second of which is found already.
    assert cold["disk"]["misses"] + cold["disk"]["hits"] == cold["regions"]
    assert cold["disk"]["misses"] > 0
    assert cold["disk"]["bytes_written"] > 0

    warm, _ = report(TORCHTPU_MODE=mode)
    assert warm["disk"]["hits"] == warm["regions"] == cold["regions"]
    assert warm["disk"]["misses"] == 0
    assert warm["compile_seconds"] == 0
    assert warm["disk"]["bytes_written"] == 0
    assert warm["disk"]["bytes_read"] > 0
    # Bit for bit.
    assert warm["results"] == cold["results"]


def test_damaged_entries_are_compiled_again(report: Callable, tmp_path: Path) -> None:
    settings = {"TORCHTPU_MODE": "defer_and_fuse"}
    cold, _ = report(**settings)
    entries = sorted((tmp_path / "cache").glob("*.program"))
    for i, entry in enumerate(entries):
        data = bytearray(entry.read_bytes())
        if i % 2:
            entry.write_bytes(data[: len(data) // 2])
        else:
            data[len(data) // 2] ^= 1
            entry.write_bytes(data)
    again, errors = report(**settings)
    assert again["disk"]["rejected"] == again["disk"]["misses"] == cold["disk"]["misses"]
    assert again["results"] == cold["results"]
    assert errors == ""
    healed, _ = report(**settings)
    assert healed["disk"]["hits"] == healed["regions"]


def test_a_folder_that_cannot_be_written_is_told_of_once(report: Callable, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the folder's place")
    told, errors = report(TORCHTPU_MODE="strict")
    assert told["disk"]["misses"] == told["regions"] > 1
    assert errors.count("can't be kept in") == 1
    assert str(tmp_path / "cache") in errors


def test_other_settings_of_the_plugin_are_other_programs(report: Callable) -> None:
    settings = {"TORCHTPU_MODE": "defer_and_fuse"}
    report(**settings)
    # The names of XLA's settings are their own.
    other, _ = report(**settings, XLA_FLAGS="--xla_cpu_enable_fast_math=false")
    assert other["disk"]["misses"] > 0


def test_the_folder_is_where_caches_are(report: Callable, tmp_path: Path) -> None:
    place = {"TORCHTPU_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    told, _ = report(**place)
    assert told["disk"]["folder"] == str(tmp_path / "xdg/deferandfuse")
    assert list((tmp_path / "xdg/deferandfuse").glob("*.program"))
    # The specification of XDG_CACHE_HOME: not absolute, not there.
    place = {"TORCHTPU_CACHE_DIR": "", "XDG_CACHE_HOME": "here", "HOME": str(tmp_path)}
    told, _ = report(**place)
    assert told["disk"]["folder"] == str(tmp_path / ".cache/deferandfuse")


def test_off_is_off(report: Callable, tmp_path: Path) -> None:
    told, _ = report(TORCHTPU_CACHE="off")
    assert told["disk"]["folder"] is None
    assert told["disk"]["misses"] == told["disk"]["bytes_written"] == 0
    assert not (tmp_path / "cache").exists()


def test_the_size_is_limited(report: Callable, tmp_path: Path) -> None:
    _, errors = report(TORCHTPU_MODE="strict", TORCHTPU_CACHE_SIZE="40K")
    assert errors == ""
    kept = [entry.stat().st_size for entry in (tmp_path / "cache").glob("*.program")]
    # As documented: give or take a sixteenth.
    assert 0 < sum(kept) <= 40 * 1024 * 17 / 16
    told, errors = report(TORCHTPU_CACHE_SIZE="plenty")
    assert "TORCHTPU_CACHE_SIZE=plenty isn't a size" in errors
    assert told["disk"]["bytes_written"] > 0
