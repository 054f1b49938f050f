"""`import torch` is enough; what happens where it can't be; which plugin is used."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from deferandfuse import _abi, _core, _env

RIVAL = """
import torch

def _autoload():
    torch.utils.rename_privateuse1_backend("tpu")
"""


def test_import_torch_is_enough(run_python):
    run_python("""
        import sys, torch
        assert "deferandfuse" in sys.modules
        assert str(torch.accelerator.current_accelerator()) == "tpu"
        assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
        assert torch.tpu.is_available() and torch.tpu.device_count() == 1
        assert str(torch.device("tpu", 0)) == "tpu:0" and torch.device("tpu").type == "tpu"
        assert torch.get_device_module("tpu") is torch.tpu
        assert torch.tpu.eager_mode is torch.tpu.EagerMode.STRICT
        assert not torch.tpu.is_initialized(), "importing must not open the device"
        x = torch.ones(2, 3, device="tpu")
        assert torch.tpu.is_initialized()
        assert x.is_tpu and x.device == torch.device("tpu:0")
        assert torch.ones(2).tpu().is_tpu and torch.nn.Linear(2, 2).tpu().weight.is_tpu
        assert x.sum().item() == 6
        torch.accelerator.synchronize()
        import deferandfuse
    """)


def test_without_autoload_it_takes_an_import(run_python):
    run_python(
        """
        import torch
        assert not hasattr(torch, "tpu")
        import deferandfuse
        assert torch.ones(3, device="tpu").sum().item() == 3
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_import_of_the_package_first(run_python):
    run_python("import deferandfuse, torch; assert torch.ones(3, device='tpu').sum().item() == 3")


def test_another_name_for_the_device_is_an_error(run_python):
    done = run_python(
        """
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        import deferandfuse
        """,
        ok=False,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert "another package named it 'npu'" in done.stderr


# ---- a torch that doesn't fit


def test_the_library_says_what_it_was_built_for():
    assert _abi.built_for(_core.__file__) == torch.__version__
    _abi.check(torch.__version__)
    _abi.check("2.15.7+cpu")


def test_a_torch_that_does_not_fit_is_an_error_with_both_versions(run_python):
    done = run_python(
        """
        import torch
        torch.__version__ = "2.16.0+cpu"
        import deferandfuse
        """,
        ok=False,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError"), done.stderr
    assert torch.__version__ in last and "2.16.0+cpu" in last and "Reinstall" in last
    assert "undefined symbol" not in done.stderr


def test_a_library_without_marker_is_an_error(tmp_path):
    other = tmp_path / "_core.so"
    other.write_bytes(b"\x7fELF something else")
    with pytest.raises(ImportError, match="isn't the extension"):
        _abi.built_for(str(other))


# ---- another package with the same device


@pytest.fixture
def rival(tmp_path):
    """A distribution `torch-tpu` that provides a device tpu too."""
    (tmp_path / "torch_tpu").mkdir()
    (tmp_path / "torch_tpu/__init__.py").write_text(RIVAL)
    info = tmp_path / "torch_tpu-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-tpu\nVersion: 9.9\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_tpu = torch_tpu:_autoload\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_a_rival_keeps_the_device_and_a_message_says_how_to_choose(run_python, rival):
    done = run_python("import torch; assert not hasattr(torch, 'tpu')", **rival)
    for part in (
        "torch-tpu and deferandfuse both provide device 'tpu'",
        "TORCHTPU_BACKEND=torch_tpu",
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0",
    ):
        assert part in done.stderr, done.stderr


def test_choosing_the_rival_silences_the_message(run_python, rival):
    done = run_python("import torch", TORCHTPU_BACKEND="torch_tpu", **rival)
    assert "deferandfuse" not in done.stderr


def test_choosing_this_package_beside_a_rival(run_python, rival):
    done = run_python("import torch", ok=False, TORCHTPU_BACKEND="deferandfuse", **rival)
    assert "uninstall torch-tpu" in done.stderr
    run_python(
        "import torch, deferandfuse; assert torch.ones(2, device='tpu').sum().item() == 2",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        **rival,
    )


# ---- plugin


def test_device_properties():
    told = torch.tpu.get_device_properties()
    assert os.path.isfile(told.plugin)
    assert told.platform and told.name == torch.tpu.get_device_name(0)
    major, minor = map(int, told.pjrt_api_version.split("."))
    assert (major, minor) == torch.tpu.get_device_capability("tpu")
    assert told.device_count == 1 and told.total_memory > 0
    with pytest.raises(RuntimeError, match="tpu:1"):
        torch.tpu.get_device_properties(1)
    with pytest.raises(ValueError, match="expected a tpu device"):
        torch.tpu.get_device_properties("cpu")


def test_the_environment_chooses_the_plugin(run_python, tmp_path):
    link = tmp_path / "mine.so"
    link.symlink_to(_env.plugin_paths()[0])
    done = run_python(
        "import torch; print(torch.tpu.get_device_properties().plugin)",
        TORCHTPU_PJRT_PLUGIN=str(link),
    )
    assert done.stdout.strip() == str(link)


def test_libtpu_counts_only_where_there_is_a_tpu(monkeypatch, tmp_path):
    (tmp_path / "libtpu").mkdir()
    (tmp_path / "libtpu/__init__.py").touch()
    (tmp_path / "libtpu/libtpu.so").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_env, "_has_tpu", lambda: False)
    assert _env.plugin_paths()[1] is None
    monkeypatch.setattr(_env, "_has_tpu", lambda: True)
    assert _env.plugin_paths()[1] == str(tmp_path / "libtpu/libtpu.so")


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        ("/nowhere/plugin.so", "/nowhere/plugin.so"),
        (os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"), "GetPjrtApi"),
    ],
    ids=["missing", "not a plugin"],
)
def test_a_bad_plugin_is_an_error_and_the_process_goes_on(run_python, plugin, complaint):
    done = run_python(
        """
        import torch
        for _ in range(2):
            try:
                torch.ones(2, device="tpu")
            except RuntimeError as e:
                print(e)
            else:
                raise SystemExit("no error")
        assert torch.ones(2).sum().item() == 2
        """,
        TORCHTPU_PJRT_PLUGIN=plugin,
    )
    assert done.stdout.count("the tpu device can't be opened") == 2
    assert complaint in done.stdout and "TORCHTPU_PJRT_PLUGIN" in done.stdout, done.stdout


def test_an_editor_can_read_the_package():
    """The marker of typed packages is installed, and the public names exist."""
    folder = os.path.dirname(_abi.__file__)
    assert os.path.isfile(os.path.join(folder, "py.typed"))
    assert [name for name in torch.tpu.__all__ if not hasattr(torch.tpu, name)] == []


def test_a_program_without_torch_on_its_path_is_told_so():
    """The package itself says which module is missing, not something deeper."""
    program = textwrap.dedent("""
        import sys
        sys.modules["torch"] = None
        import deferandfuse
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and "torch" in done.stderr.strip().splitlines()[-1]
