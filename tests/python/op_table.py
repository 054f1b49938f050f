"""Elementwise calls that `test_ops` compares with PyTorch on the CPU: a row each."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i64, i32, u8, boolean, c64 = torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64
nan, inf = float("nan"), float("inf")


def words(names: str) -> list[str]:
    return names.split()


@dataclass
class Row:
    """A call of `fn` on `args` (CPU tensors or plain values, which go to the device)."""

    name: str
    fn: Callable
    args: tuple
    ulps: float | None = None  # Tolerance in ulps of the largest value; by dtype if None.
    signed_zero: bool = False  # -0 and 0 are told apart.

    @property
    def own_dtype(self) -> bool:
        """Float64 gives another answer: the reference is the call itself."""
        return "nextafter" in self.name or "nan_to_num" in self.name


ROWS: list[Row] = []


def row(name: str, fn: Callable, *args, ulps: float | None = None, signed_zero: bool = False):
    ROWS.append(Row(name, fn, args, ulps, signed_zero))


def rand(*shape: int, dtype: torch.dtype = f32, low: float = -2.0, high: float = 2.0):
    """Values in [low, high), the same for the same shape."""
    g = torch.Generator().manual_seed(sum(shape) + len(shape))
    x = torch.rand(shape, generator=g, dtype=f64) * (high - low) + low
    if dtype == boolean:
        return x > (low + high) / 2
    if dtype.is_complex:
        y = torch.rand(shape, generator=g, dtype=f64) * (high - low) + low
        return torch.complex(x, y).to(dtype)
    if dtype.is_floating_point:
        return x.to(dtype)
    whole = (x * 3).floor()
    return (whole.abs() if dtype == u8 else whole).to(dtype)


def index(high: int, *shape: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(high)
    return torch.randint(high, shape, generator=g)


def t(dtype: torch.dtype, *values) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


# As a 2 x n matrix, so that it has a non-contiguous form.
SPECIAL = t(f32, nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, 1e-3, 700.0,
            -1e4, 0.25).view(2, 8)
MODEST = SPECIAL.clamp(-20, 20)

UNARY = words("""
    abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp
    exp2 expm1 floor frac isfinite isinf isnan isneginf isposinf log log10 log1p log2
    logical_not neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin
    sinc sinh sqrt square tan tanh trunc nan_to_num special.entr special.expit special.ndtr
    lgamma
""")
SIGNED = words("""
    abs ceil floor neg positive round sqrt trunc sign sgn asin atan sin tan sinh tanh
""")


def function(name: str) -> Callable:
    return getattr(torch.special, name[8:]) if name.startswith("special.") else getattr(torch, name)


# What float32 arithmetic makes of the function: the reference is float64's.
UNARY_ULPS = {"digamma": 200, "lgamma": 64, "erfinv": 64, "tan": 64,
              "sinh": 64, "cosh": 64, "exp": 64, "exp2": 64, "expm1": 64}
for name in UNARY:
    ulps = UNARY_ULPS.get(name)
    row(f"{name} f32", function(name), SPECIAL if name not in ("exp", "expm1", "exp2", "cosh",
        "sinh") else MODEST, ulps=ulps, signed_zero=name in SIGNED)
    row(f"{name} f64", function(name), MODEST.double(), ulps=None if ulps is None else ulps)
    row(f"{name} bf16", function(name), MODEST.bfloat16())
for name in words("""
    abs neg sign square bitwise_not logical_not sqrt exp sin tanh sigmoid reciprocal ceil
    floor trunc round relu isnan isfinite positive sgn log2 erf
"""):
    row(f"{name} i64", function(name), rand(3, 4, dtype=i64))
    if name != "bitwise_not":
        row(f"{name}_ f32", lambda x, n=name: getattr(x.clone(), n + "_")()
            if hasattr(x, n + "_") else function(n)(x), rand(3, 4, low=0.3))
for name in words("""
    logical_not bitwise_not isnan sqrt exp sign
"""):
    row(f"{name} bool", function(name), rand(3, 4, dtype=boolean))
for name in words("""
    exp sin neg abs conj_physical sqrt real imag angle sgn reciprocal square
"""):
    row(f"{name} c64", lambda x, n=name: function(n)(x), rand(3, 4, dtype=c64), ulps=32)

ACTIVATIONS = [
    ("relu6", F.relu6), ("elu", F.elu), ("celu", F.celu), ("selu", F.selu), ("gelu", F.gelu),
    ("gelu tanh", lambda x: F.gelu(x, approximate="tanh")), ("silu", F.silu), ("mish", F.mish),
    ("softplus", F.softplus), ("softsign", F.softsign), ("hardswish", F.hardswish),
    ("hardsigmoid", F.hardsigmoid), ("hardtanh", lambda x: F.hardtanh(x, -0.5, 1.5)),
    ("leaky_relu", lambda x: F.leaky_relu(x, 0.1)), ("logsigmoid", F.logsigmoid),
    ("hardshrink", F.hardshrink), ("softshrink", F.softshrink), ("tanhshrink", F.tanhshrink),
    ("threshold", lambda x: F.threshold(x, 0.3, -1.0)),
    ("logit", lambda x: torch.logit(x, 0.125)), ("clamp", lambda x: x.clamp(-1, 2)),
    ("clamp min", lambda x: x.clamp(min=0.5)), ("clip", lambda x: torch.clip(x, max=1)),
    ("pow 2", lambda x: x**2), ("pow 3", lambda x: x**3), ("pow 0.5", lambda x: x**0.5),
    ("pow -1", lambda x: x**-1), ("pow 0", lambda x: x**0), ("rpow", lambda x: 2**x),
    ("round decimals", lambda x: torch.round(x, decimals=1)),
    # Order 1 is in test_ops.py: torch's own float64 series for it ends at 1e-9.
    ("polygamma", lambda x: torch.polygamma(2, x.abs() + 0.5)),
    ("multigammaln", lambda x: torch.special.multigammaln(x.abs() + 2, 2)),
]
for (name, f), dtype in itertools.product(ACTIVATIONS, (f32, bf16, f64)):
    # `2**x` of the largest values is large.
    row(f"{name} {dtype}", f, MODEST.to(dtype), ulps=64 if dtype is f32 else
        8 if dtype is bf16 else 64)

for dtype in (torch.float16, bf16, f32, f64):
    row(f"times a mask {dtype}", lambda x: x * (x < 0.5), SPECIAL.to(dtype), signed_zero=True)

BINARY = words("""
    add sub mul div true_divide floor_divide remainder fmod maximum minimum fmax fmin eq ne lt
    le gt ge logical_and logical_or logical_xor atan2 hypot copysign pow xlogy logaddexp
    logaddexp2 heaviside nextafter float_power special.xlog1py
""")
PAIRS = t(f32, nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0)
FINITE = t(f32, 0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0)
for name in BINARY:
    grid = PAIRS
    row(f"{name} f32", function(name), grid[:, None], grid[None], ulps=32)
    if name != "nextafter":
        row(f"{name} bf16", function(name), grid.bfloat16()[:, None], grid.bfloat16()[None])
    row(f"{name} broadcast", function(name), rand(2, 3, 4, low=0.5), rand(3, 1, low=0.5), ulps=32)
    if name not in ("heaviside", "nextafter", "atan2", "hypot", "copysign"):
        row(f"{name} scalar", lambda x, n=name: function(n)(x, torch.tensor(2)),
            rand(3, 4, low=0.25), ulps=32)
INTS = rand(4, 4, dtype=i64)
NONZERO = t(i64, 1, -1, 2, -3)
for name in words("""
    add sub mul div floor_divide remainder fmod maximum minimum eq ne lt le gt ge bitwise_and
    bitwise_or bitwise_xor logical_and logical_xor gcd lcm atan2 copysign
"""):
    row(f"{name} i64", function(name), INTS, NONZERO)
    if name not in ("atan2", "copysign"):
        row(f"{name} u8", function(name), INTS.abs().to(u8), NONZERO.abs().to(u8))
    row(f"{name} mixed", function(name), INTS, NONZERO.to(i32))
for name in words("""
    add mul eq ne lt ge logical_or logical_and bitwise_and bitwise_xor bitwise_or maximum
    minimum div
"""):
    row(f"{name} bool", function(name), rand(3, 4, dtype=boolean), t(boolean, 1, 0, 1, 0))
row("shift", lambda x, n: (x << n, x >> n, 2 << n, x << 1), INTS, NONZERO.abs())
row("pow i64", torch.pow, INTS, t(i64, 0, 1, 2, 3))
for mode, dtype in itertools.product((None, "trunc", "floor"), (f32, i64, bf16)):
    row(f"div {mode} {dtype}", lambda a, b, m=mode: torch.div(a, b, rounding_mode=m),
        (FINITE * 3).to(dtype)[:, None], t(dtype, 1, -2, 3)[None])
for name in ("add", "sub", "mul", "div", "eq", "ne"):
    row(f"{name} c64", function(name), rand(3, 4, dtype=c64), rand(4, dtype=c64), ulps=32)
for name in ("add", "sub", "mul", "div", "remainder", "fmod", "floor_divide", "eq", "lt", "pow"):
    row(f"{name}_ f32", lambda a, b, n=name: getattr(a.clone(), n + "_")(b),
        rand(3, 4, low=0.5), rand(4, low=0.5), ulps=32)
    if name != "floor_divide":
        row(f"{name} out", lambda a, b, n=name: function(n)(
            a, b, out=torch.empty(3, 4, device=a.device, dtype=boolean if n in ("eq", "lt")
                                  else a.dtype)), rand(3, 4, low=0.5), rand(4, low=0.5), ulps=32)
row("scalar in place", lambda x: (
    x.clone().pow_(2), x.clone().square_(), x.clone().pow_(1.5), x.clone().remainder_(0.7),
    x.clone().fmod_(2), x.clone().add_(1, alpha=2), x.clone().mul_(0.5), x.clone().div_(3),
    x.clone().floor_divide_(2), x.clone().clamp_(1, 1.5), x.clone().lt_(1), x.clone().xlogy_(2),
    x.clone().copysign_(-1.0), x.clone().fill_diagonal_(3)), rand(3, 4, low=0.5), ulps=32)
row("scalar out", lambda x: (
    torch.pow(x, 2, out=x.new_empty(0)), torch.pow(2, x, out=x.new_empty(0)),
    torch.remainder(x, 0.7, out=x.new_empty(0)), torch.clamp(x, 1, 2, out=x.new_empty(0)),
    torch.eq(x, 1, out=torch.empty(0, dtype=boolean, device=x.device))),
    rand(3, 4, low=0.5), ulps=32)
for a, b in itertools.combinations((f32, f64, f16, bf16, i64, i32, u8, boolean, c64), 2):
    row(f"promotion {a} {b}", lambda x, y: (x + y, x * y), rand(3, 4, dtype=a, low=0.0),
        rand(4, dtype=b, low=0.0), ulps=4)
for s in (2, -1.5, True, 0, 0.5):
    row(f"scalars {s}", lambda x, s=s: (x + s, s * x, x >= s, x == s, x / 2 - float(s)),
        rand(3, 4))
    row(f"scalars i64 {s}", lambda x, s=s: (x + s, x * s, x > s, 2.5 - x), INTS)
    row(f"scalars bool {s}", lambda x, s=s: (x + s, x * s), rand(3, 4, dtype=boolean))
row("rsub", lambda x: torch.rsub(x, 2, alpha=3), rand(3, 4))
row("add alpha", lambda a, b: torch.add(a, b, alpha=-2), rand(3, 4), rand(4))
row("sub alpha i64", lambda a: torch.sub(a, a.T, alpha=2), INTS)
row("zero-dim", lambda a, b: (a + b, b * a.long(), b / a.double()), rand(3, dtype=bf16), rand())

TERNARY = rand(3, 4), rand(3, 1, low=0.5), rand(4, low=0.5)
for dtype in (f32, bf16, f64):
    for name, f in [
        ("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5)),
        ("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=-2)),
        ("addcmul_", lambda a, b, c: a.clone().addcmul_(b, c)),
        ("lerp", torch.lerp), ("lerp scalar", lambda a, b, c: torch.lerp(a, b, 0.3)),
        ("where", lambda a, b, c: torch.where(a > 0, b, c)),
        ("where scalar", lambda a, b, c: torch.where(a > 0, b, 1.5)),
        ("clamp tensors", lambda a, b, c: torch.clamp(a, -b, c)),
    ]:
        row(f"{name} {dtype}", f, *(x.to(dtype) for x in TERNARY), ulps=8)
row("masked_fill", lambda x, m: (x.masked_fill(m, 3), x.masked_fill(m, torch.tensor(-inf))),
    rand(3, 4), rand(4, dtype=boolean))
row("isclose", lambda a: torch.isclose(a[:, None], a[None], equal_nan=True), PAIRS)
row("isin", lambda a: torch.isin(a, torch.tensor([1, 2, -3], device=a.device)), INTS)
row("complex parts", lambda z: (z.real, z.imag, z.conj() + 1, torch.view_as_real(z), z.abs()),
    rand(3, 4, dtype=c64))
row("complex and polar", lambda a, b: (torch.complex(a, b), torch.polar(a, b)),
    rand(3, 4, low=0.1), rand(3, 4), ulps=16)
row("casts", lambda x: tuple(x.to(d) for d in (f64, f16, bf16, i64, i32, torch.int8, boolean)),
    rand(3, 4))
row("casts from int", lambda x: tuple(x.to(d) for d in (f64, f16, f32, i32, u8, boolean)),
    INTS.abs())
