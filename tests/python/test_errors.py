"""Errors say what failed, on which op and shapes, and where it was recorded; then all goes on."""

import inspect
import pathlib
import re
import subprocess
import warnings

import harness
import pytest
import torch
from deferandfuse import _env
from torch.nn import functional as F

# 2^42 float32: 16 TiB.
HUGE = 1 << 42


@pytest.fixture(autouse=True)
def goes_on():
    """After each failure, and in each mode, the device still works."""
    yield
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TORCHTPU_FALLBACK", raising=False)
        x = torch.arange(4.0, device="tpu")
        assert (x * 2).sum().item() == 12
        torch.tpu.synchronize()


def grid() -> torch.Tensor:
    return torch.arange(12.0, device="tpu").reshape(3, 4)


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64, device="tpu")


# What fails → its error type, torch's own words, and the call that is named.
MISTAKES = {
    "broadcast": (
        lambda x: x + torch.ones(5, device="tpu"),
        RuntimeError,
        "The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1",
        "aten::add.Tensor(float32[3, 4], float32[5], 1)",
    ),
    "matmul": (
        lambda x: x @ x,
        RuntimeError,
        "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)",
        "aten::mm(float32[3, 4], float32[3, 4])",
    ),
    "bmm": (
        lambda x: torch.bmm(x[None], x[None]),
        RuntimeError,
        "Expected size for first two dimensions of batch2 tensor",
        "aten::bmm(float32[1, 3, 4], float32[1, 3, 4])",
    ),
    "cat": (
        lambda x: torch.cat([x, torch.ones(2, 3, device="tpu")]),
        RuntimeError,
        "Sizes of tensors must match except in dimension 0",
        "aten::cat([float32[3, 4], float32[2, 3]], 0)",
    ),
    "conv": (
        lambda x: F.conv2d(x[None, None], torch.ones(1, 2, 1, 1, device="tpu")),
        RuntimeError,
        "channels",
        "aten::convolution(float32[1, 1, 3, 4], float32[1, 2, 1, 1]",
    ),
    "dimension": (
        lambda x: x.sum(5),
        IndexError,
        "Dimension out of range (expected to be in range of [-2, 1], but got 5)",
        "aten::sum.dim_IntList(float32[3, 4], [5]",
    ),
    "matmul dtypes": (
        lambda x: x @ x.t().double(),
        RuntimeError,
        "expected m1 and m2 to have the same dtype",
        "aten::mm(float32[3, 4], float64[4, 3]",
    ),
    "index dtype": (
        lambda x: x.gather(1, torch.zeros(3, 1, device="tpu")),
        RuntimeError,
        "int64",
        "aten::gather(float32[3, 4], 1, float32[3, 1]",
    ),
    "cast of a result": (
        lambda x: ints(3, 4).add_(x),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
        "aten::add.Tensor(int64[3, 4], float32[3, 4], 1)",
    ),
    "not for this dtype": (
        lambda x: x & 1,
        NotImplementedError,
        "\"bitwise_and_cpu\" not implemented for 'Float'",
        "aten::bitwise_and.Scalar(float32[3, 4], 1)",
    ),
    "not for any dtype": (
        lambda x: x.to(torch.complex32),
        NotImplementedError,
        "tensors of dtype complex32 are not supported on tpu",
        "aten::copy",
    ),
    "a tensor on the CPU": (
        lambda x: x + torch.ones(3, 4),
        RuntimeError,
        "Expected all tensors to be on the same device, but found at least two devices, tpu:0 and "
        "cpu! (argument other of aten::add.Tensor)",
        "aten::add.Tensor(float32[3, 4], cpu float32[3, 4], 1)",
    ),
    "a list with one on the CPU": (
        lambda x: torch.cat([x, torch.ones(3, 4)]),
        RuntimeError,
        "tpu:0 and cpu! (argument tensors of aten::cat)",
        "aten::cat([float32[3, 4], cpu float32[3, 4]], 0)",
    ),
    "a module on the CPU": (
        lambda x: F.embedding(ints(2), torch.ones(3, 3)),
        RuntimeError,
        "tpu:0 and cpu! (argument weight of aten::embedding)",
        "aten::embedding(cpu float32[3, 3], int64[2]",
    ),
    "larger than any memory": (
        lambda x: torch.zeros(1, device="tpu").expand(1 << 62).sum(),
        RuntimeError,
        "float32[4611686018427387904] is too large: no tensor may have 2^63 bytes",
        "aten::sum(float32[4611686018427387904]",
    ),
    "negative size": (
        lambda x: torch.zeros(-1, device="tpu"),
        RuntimeError,
        "Trying to create tensor with negative dimension",
        "aten::zeros([-1]",
    ),
}


@pytest.mark.parametrize(("call", "kind", "words", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_an_error_at_its_own_line(mode, call, kind, words, named):
    x = grid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(kind) as caught:
            call(x)
    told = str(caught.value)
    assert words in told, told
    assert f"in {named}" in told, told
    line = inspect.getsourcelines(call)[1]
    at = re.search(r"recorded at (.*):(\d+) in ", told)
    assert at and at[1] == __file__ and line <= int(at[2]) <= line + 1, told
    # Nothing was written, and nothing is left to fail later.
    assert x.sum().item() == 66
    torch.tpu.synchronize()


@pytest.mark.parametrize("make", [torch.ones, torch.empty, torch.rand], ids=lambda f: f.__name__)
def test_there_is_one_device(make):
    with pytest.raises(RuntimeError, match="invalid device tpu:1: the only one is tpu:0"):
        make(2, device="tpu:1")


def test_values_that_do_not_exist_yet(mode):
    with pytest.raises(RuntimeError, match="12 elements cannot be converted to Scalar"):
        grid().item()
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value"):
        bool(grid())


# ---- what only running finds


def allocated_at_launch() -> torch.Tensor:
    return torch.zeros(HUGE, device="tpu")


def allocated_while_running() -> torch.Tensor:
    return torch.zeros(1, device="tpu").expand(HUGE).cumsum(0)[-1]


@pytest.mark.parametrize("make", [allocated_at_launch, allocated_while_running])
@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: torch.tpu.synchronize()],
    ids=["read", "synchronize"],
)
def test_out_of_memory(mode, make, read):
    with pytest.raises(torch.OutOfMemoryError) as caught:
        x = make()
        assert mode != "debug", "it must be raised by the op itself"
        read(x)
    told = str(caught.value)
    assert "Out of memory" in told, told
    assert "aten::" in told and f"float32[{HUGE}]" in told, told
    assert f"recorded at {__file__}" in told, told
    torch.tpu.synchronize()  # Told once.


def test_what_depends_on_a_failure_fails_with_it(mode):
    if mode == "debug":
        pytest.skip("there the failing op raises, so that nothing can depend on it")
    x = allocated_at_launch()
    first = inspect.getsourcelines(allocated_at_launch)[1]
    # A region fails as a whole, so this one must not be in the same.
    torch.tpu.flush()
    other = torch.ones(3, device="tpu")
    torch.tpu.flush()
    y = x[:3] + 1
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError) as caught:
            (y * 2).cpu()
        if mode == "strict":
            assert f"recorded at {__file__}:{first + 1} in allocated_at_launch" in str(caught.value)
    assert other.sum().item() == 3, "what doesn't depend on it is there"
    y.fill_(1)
    assert y.sum().item() == 3, "and a failed tensor can be written anew"


# A plugin that is the real one, but hands its compiler half of any program with a sine in it.
REFUSING_PLUGIN = r"""
#include <dlfcn.h>
#include <cstring>
#include "pjrt_c_api.h"

static PJRT_Client_Compile* compile;

static PJRT_Error* compile_without_sine(PJRT_Client_Compile_Args* args) {
  PJRT_Program half = *args->program;
  if (memmem(half.code, half.code_size, "stablehlo.sine", 14) == nullptr) return compile(args);
  half.code_size /= 2;
  args->program = &half;
  return compile(args);
}

extern "C" const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api;
  void* plugin = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* real = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(plugin, "GetPjrtApi"))();
  memcpy(&api, real, real->struct_size < sizeof api ? real->struct_size : sizeof api);
  compile = api.PJRT_Client_Compile;
  api.PJRT_Client_Compile = &compile_without_sine;
  return &api;
}
"""


def test_a_program_that_xla_refuses(run_python, tmp_path):
    real = _env.plugin_paths()[0]
    header = next(pathlib.Path(real).parent.rglob("pjrt_c_api.h"))
    source, plugin = tmp_path / "refusing.cpp", tmp_path / "refusing.so"
    source.write_text(REFUSING_PLUGIN)
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-shared",
            "-fPIC",
            f"-I{header.parent}",
            f'-DREAL="{real}"',
            source,
            "-o",
            plugin,
            "-ldl",
        ],
        check=True,
    )
    program = tmp_path / "program.py"
    program.write_text(
        """
import torch
x = torch.linspace(0, 1, 4, device="tpu")
for mode in ("strict", "debug", "defer_and_fuse"):
    torch.tpu.set_eager_mode(mode)
    for again in range(2):
        try:
            y = x.sin()
            assert mode != "debug"
            (y + 1).cpu()
        except RuntimeError as e:
            told = str(e)
            for part in ("XLA can't compile this program", "aten::sin(float32[4])",
                         "program.py:8 in <module>" if mode != "defer_and_fuse" else "program.py"):
                assert part in told, (mode, part, told)
        else:
            raise SystemExit(mode + ": no error")
    assert x.cos().sum().item() > 0
    torch.tpu.synchronize()
print("done")
"""
    )
    done = run_python(
        f"import runpy; runpy.run_path({str(program)!r})", TORCHTPU_PJRT_PLUGIN=str(plugin)
    )
    assert done.stdout.strip() == "done"


def test_an_error_in_the_backward_pass_names_the_node(mode):
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = x.exp().sum()
    with pytest.raises(RuntimeError) as caught:
        torch.autograd.grad(x.exp(), x, torch.ones(2, device="tpu"))
    assert "shape" in str(caught.value)
    y.backward()
    assert x.grad.is_tpu


# ---- fallbacks


def no_native_definition(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvalsh(x)


OP = "aten::_linalg_eigh"


def test_the_op_of_these_tests_is_not_native():
    assert OP not in torch.tpu.native_ops()
    assert len(torch.tpu.native_ops()) >= 250


def test_a_fallback_is_warned_of_once_and_counted(run_python):
    done = run_python(
        """
        import torch
        x = torch.eye(3, device="tpu")
        for _ in range(3):
            assert torch.linalg.eigvalsh(x).cpu().tolist() == [1, 1, 1]
        print(torch.tpu.fallbacks())
        """
    )
    assert done.stdout.strip() == str({OP: 3})
    assert done.stderr.count(f"{OP} isn't native on tpu and runs on the CPU") == 1, done.stderr


def test_a_fallback_can_be_refused(mode, monkeypatch):
    x = torch.eye(3, device="tpu")
    before = harness.fallbacks()
    monkeypatch.setenv("TORCHTPU_FALLBACK", "error")
    with pytest.raises(NotImplementedError) as caught:
        no_native_definition(x)
    told = str(caught.value)
    assert f"{OP} isn't native on tpu and TORCHTPU_FALLBACK=error" in told, told
    assert f"in {OP}(float32[3, 3], L, False" in told, told
    assert f"recorded at {__file__}" in told, told
    assert harness.new_fallbacks(before) == {}
    monkeypatch.delenv("TORCHTPU_FALLBACK")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert no_native_definition(x).sum().item() == 3
    assert harness.new_fallbacks(before) == {OP: 1}


def test_a_fallback_takes_part_in_everything_else(mode):
    """Autograd, out=, and what is pending before and after."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = (torch.eye(3, device="tpu") * 2 + 1).requires_grad_()
        values, vectors = torch.linalg.eigh(x * 1)
        (values * 2).sum().backward()
        torch.testing.assert_close(x.grad.cpu(), 2 * torch.eye(3))
        torch.testing.assert_close(
            (vectors * values) @ vectors.mT, x.detach() * 1, rtol=1e-5, atol=1e-5
        )
        out = torch.empty(0, device="tpu")
        torch.linalg.eigvalsh(x.detach(), out=out)
        torch.testing.assert_close(out.cpu(), values.detach().cpu())
