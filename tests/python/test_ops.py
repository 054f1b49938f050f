"""Single op calls against PyTorch on the CPU.

Each row of the tables runs in Strict with contiguous inputs and in DeferAndFuse with
non-contiguous ones. Its dtype and shape are those of the same call on the CPU; floating values
are judged by the call in float64 on the CPU, all others by equality. None may run on the CPU.
"""

import itertools
import math

import harness
import op_table
import op_table_nn  # noqa: F401 adds its rows
import op_table_tensors  # noqa: F401 adds its rows
import pytest
import torch

# Ulps of the dtype. float32 and float64: sums of a dozen terms and functions good to a few ulps
# each, over two or three ops. Halves: one rounding of a result computed in float32, and the
# operands of the composite ones.
ULPS = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 16, torch.float64: 16}
WIDE = {torch.complex64: torch.complex128, torch.complex128: torch.complex128}


def wide(x):
    """The same in float64, if floating."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def strided(x):
    """The same values with permuted strides."""
    if not isinstance(x, torch.Tensor) or x.dim() < 2:
        return x
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def flat(result) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return list(itertools.chain.from_iterable(map(flat, result)))


def parts(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def compare(row, got: torch.Tensor, like: torch.Tensor, reference: torch.Tensor) -> None:
    """Raises AssertionError unless `got` is `like` in dtype and shape, `reference` in value."""
    assert got.dtype == like.dtype, f"{got.dtype}, not {like.dtype}"
    assert got.shape == like.shape, f"{list(got.shape)}, not {list(like.shape)}"
    got, like, reference = parts(got.cpu()), parts(like), parts(reference)
    if not like.is_floating_point():
        assert torch.equal(got, like), f"{got}\nnot\n{like}"
        return
    # What overflows in this dtype does so on the CPU too.
    g, w = got.double(), torch.where(like.isinf(), like.double(), reference.double())
    finite = w[w.isfinite()]
    largest = finite.abs().max().item() if len(finite) else 0.0
    tolerance = (row.ulps or ULPS[got.dtype]) * torch.finfo(got.dtype).eps * max(largest, 1e-30)
    close = ((g - w).abs() <= tolerance) | (g == w) | (g.isnan() & w.isnan())
    assert close.all(), f"{got}\nnot\n{w}\nwithin {tolerance:.3g}"
    if row.signed_zero:
        zeros = like == 0
        assert torch.equal(got.signbit()[zeros], like.signbit()[zeros]), f"{got}: signs of zero"


def run(row, arrange) -> list[torch.Tensor]:
    device = [x.to(harness.DEVICE) if isinstance(x, torch.Tensor) else x for x in row.args]
    return flat(row.fn(*map(arrange, device)))


NAMES = [r.name for r in op_table.ROWS]


def test_table():
    assert len(set(NAMES)) == len(NAMES), "names must tell rows apart"
    assert len(NAMES) >= 200


@pytest.mark.parametrize("row", op_table.ROWS, ids=NAMES)
def test_op(row):
    like = flat(row.fn(*row.args))
    reference = like if row.own_dtype else flat(row.fn(*map(wide, row.args)))
    ways = [("strict", lambda x: x), ("defer_and_fuse", strided)]
    for how, arrange in ways:
        with harness.mode(how), harness.no_fallback():
            got = run(row, arrange)
            assert len(got) == len(like)
            for g, x, r in zip(got, like, reference, strict=True):
                assert g.device.type == harness.DEVICE or row.name == "items"
                compare(row, g, x, r)


# Ops without a native definition: overload → a call, and why it has none.
WHY_LAPACK = "a matrix factorisation: iterative, which StableHLO has no op for on every plugin"
EXPECTED_FALLBACKS = {
    "aten::special_log_ndtr": (
        torch.special.log_ndtr, "needs erfcx, which neither StableHLO nor CHLO has"),
    "aten::linalg_eigh": (lambda x: torch.linalg.eigvalsh(x @ x.mT), WHY_LAPACK),
    "aten::linalg_svd": (torch.linalg.svdvals, WHY_LAPACK),
    "aten::linalg_qr": (lambda x: torch.linalg.qr(x)[1].abs(), WHY_LAPACK),
}


@pytest.mark.parametrize("op", EXPECTED_FALLBACKS)
def test_expected_fallback(op):
    """Runs on the CPU, counted, and gives what the CPU gives."""
    call, _why = EXPECTED_FALLBACKS[op]
    x = op_table.rand(3, 3)
    before = harness.fallbacks()
    got = call(x.to(harness.DEVICE))
    assert got.device.type == harness.DEVICE
    torch.testing.assert_close(got.cpu(), call(x))
    if harness.DEVICE == "tpu":
        new = harness.new_fallbacks(before)
        assert any(name.split(".")[0].startswith(op) or name.startswith("aten::_" + op[6:])
                   for name in new), new


def test_trigamma_in_closed_form():
    """At halves and at 1 (NIST DLMF 5.15); torch's CPU series is off by 1.5e-9 there."""
    x = torch.tensor([0.5, 1.0, 1.5, -0.5], dtype=torch.float64)
    square = torch.pi**2
    want = torch.tensor(
        [square / 2, square / 6, square / 2 - 4, square / 2 + 4], dtype=torch.float64)
    rtol = 1e-14 if harness.DEVICE == "tpu" else 1e-8
    got = torch.polygamma(1, x.to(harness.DEVICE)).cpu()
    torch.testing.assert_close(got, want, rtol=rtol, atol=0)


def test_tolerance_is_no_formality():
    """The test of the test: an error of a thousandth is one."""
    row = op_table.Row("x", torch.exp, ())
    x = torch.tensor([1.0, 2.0, math.pi])
    compare(row, x.clone(), x, x.double())
    with pytest.raises(AssertionError):
        compare(row, x * 1.001, x, x.double())
    with pytest.raises(AssertionError):
        compare(row, x.double(), x, x.double())
