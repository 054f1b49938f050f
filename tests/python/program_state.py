"""A random program's state on the CPU: its variables, and how exact they are.

Beside each storage goes a bound on how far a right answer may be from the CPU's, by the usual
forward error analysis (a rounding is at most half an ulp on each of the two sides; an operand's
error passes through with the op's condition). It is 0 as long as values are dyadic rationals
that fit the mantissa, whatever the order of the additions, and then results must be equal. Ops
that jump (comparisons, floor, casts to int, sort, control flow) take only such values.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log2

import torch

# Mantissa bits, and the ulp of 1. Complex values have those of their parts.
BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
BITS[torch.complex64] = 24
LIMIT = 2000.0  # Magnitude of floating values: float16 ends at 65504.
INT_LIMIT = 2**22

PRELUDE = '''\
def raises(f):
    try:
        f()
    except (RuntimeError, IndexError, TypeError, ValueError):
        return True
    return False
'''


class Rejected(Exception):
    """The statement would not have one right answer on every device."""


# What a rule gives: the error of the result, or how to tell it from the result.
Error = float | Callable[[torch.Tensor], float]


@dataclass
class Statement:
    """One statement. `rule` judges it against the state before it."""

    source: str
    rule: Callable[["State"], Error]
    reads: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    writes: str | None = None
    whole: bool = False  # Each element of `writes` is overwritten.
    kind: str = ""


@dataclass
class Stat:
    """What the rules ask of an operand: magnitudes are those of its finite values."""

    largest: float
    smallest: float
    grid: int | None  # All values are multiples of 2^-grid.
    error: float
    finite: bool
    count: int


def grid_of(values: torch.Tensor) -> int | None:
    """The least g ≥ 0 for which all `values` (float64, finite) are multiples of 2^-g."""
    scaled = values * 2.0**20
    whole = scaled.round()
    if values.numel() == 0:
        return 0
    if (scaled != whole).any() or whole.abs().max() > 2.0**52:
        return None
    bits = 0
    for v in whole.abs().to(torch.int64).flatten().tolist():
        bits |= v
    return max(0, 20 - ((bits & -bits).bit_length() - 1)) if bits else 0


def parts(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().resolve_conj().resolve_neg()
    return (torch.view_as_real(value) if value.is_complex() else value).to(torch.float64)


def key(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def addresses(t: torch.Tensor) -> list[int]:
    """The storage position of each element."""
    offsets = torch.tensor(t.storage_offset())
    for dim, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        shape = [1] * t.dim()
        shape[dim] = size
        offsets = offsets + (torch.arange(size) * stride).reshape(shape)
    return offsets.expand(t.shape).flatten().tolist()


class State:
    """A program so far, run on the CPU, with the error bound of each storage."""

    def __init__(self) -> None:
        self.ns: dict = {"torch": torch, "device": "cpu"}
        exec(PRELUDE, self.ns)
        self.names: list[str] = []
        self.errors: dict[int, float] = {}
        self.scalar_errors: dict[str, float] = {}
        # Storages whose strides PyTorch leaves to the device: whether a reshape of them is a
        # view isn't defined, so none is taken.
        self.loose: set[int] = set()

    def eval(self, expr: str):
        return eval(expr, self.ns)

    def error(self, expr: str) -> float:
        value = self.eval(expr)
        if isinstance(value, torch.Tensor):
            # A new storage (a literal in the expression) is exact.
            return self.errors.get(key(value), 0.0)
        return self.scalar_errors.get(expr, 0.0)

    def stat(self, expr: str) -> Stat:
        value = self.eval(expr)
        error = self.error(expr)
        values = parts(value if isinstance(value, torch.Tensor) else torch.tensor(value)).flatten()
        finite = values[values.isfinite()]
        magnitudes = finite.abs()
        return Stat(
            largest=magnitudes.max().item() if len(finite) else 0.0,
            smallest=magnitudes.min().item() if len(finite) else 0.0,
            grid=grid_of(finite),
            error=error,
            finite=len(finite) == len(values),
            count=max(1, len(values)),
        )

    # Rules.

    def same(self, *exprs: str) -> float:
        """Values pass through unchanged."""
        return max((self.error(e) for e in exprs), default=0.0)

    def exact(self, *exprs: str) -> float:
        """Values decide something: they must be exact."""
        if any(self.error(e) > 0 for e in exprs):
            raise Rejected("not exact")
        return 0.0

    def whole_number(self, expr: str) -> float:
        """A cast to any integer dtype: uint8 has the smallest range."""
        values = parts(self.eval(expr))
        if not ((values >= 0) & (values < 256)).all():
            raise Rejected("what an integer makes of this isn't defined")
        return self.exact(expr)

    def fixed(self, expr: str) -> None:
        """The layout of `expr` decides something."""
        if key(self.eval(expr)) in self.loose:
            raise Rejected("strides are the device's business")

    def rounded(
        self, stats: Iterable[Stat], bound: float, grid: int | None, passed_on: float
    ) -> Error:
        """A sum of products whose terms' magnitudes sum to `bound`, on a grid of 2^-`grid`."""
        stats = list(stats)
        if not all(s.finite for s in stats) and any(s.error for s in stats):
            raise Rejected("infinite and not exact: 0 * inf")

        def finish(out: torch.Tensor) -> float:
            bits = BITS.get(out.dtype)
            if bits is None:
                if passed_on:
                    raise Rejected("integers of inexact values")
                return 0.0
            if grid is not None and not passed_on and bound * 2.0**grid <= 2.0**bits:
                return 0.0
            if not all(s.finite for s in stats):
                raise Rejected("infinite and not exact: 0 * inf")
            # One ulp for each of two or so roundings, of an operand's cast and of the result.
            return passed_on + 3 * 2.0 ** (1 - bits) * bound

        return finish

    def add(self, a: str, b: str, scale: float = 1.0) -> Error:
        x, y = self.stat(a), self.stat(b)
        s = abs(scale)
        grid = None if x.grid is None or y.grid is None else max(x.grid, y.grid)
        if scale != round(scale):
            grid = None if grid is None else grid + 4
        return self.rounded((x, y), x.largest + s * y.largest, grid, x.error + s * y.error)

    def product(self, a: str, b: str, terms: int = 1, plus: str | None = None) -> Error:
        x, y = self.stat(a), self.stat(b)
        stats = [x, y]
        # A complex product has two terms a part.
        if any(isinstance(v, complex) or (isinstance(v, torch.Tensor) and v.is_complex())
               for v in (self.eval(a), self.eval(b))):
            terms *= 2
        grid = None if x.grid is None or y.grid is None else x.grid + y.grid
        bound = terms * x.largest * y.largest
        passed = terms * (x.error * y.largest + y.error * x.largest + x.error * y.error)
        if plus is not None:
            z = self.stat(plus)
            stats.append(z)
            grid = None if grid is None or z.grid is None else max(grid, z.grid)
            bound += z.largest
            passed += z.error
        # Each addition may round.
        finish = self.rounded(stats, bound, grid, passed)
        return lambda out: finish(out) * (1 if not passed and terms == 1 else log2(terms) + 1)

    def total(self, a: str, terms: int, divide: int = 1) -> Error:
        """A sum of `terms` values, divided by `divide`."""
        x = self.stat(a)
        grid = x.grid
        if divide & (divide - 1):
            grid = None
        elif grid is not None:
            grid += divide.bit_length() - 1
        return self.rounded((x,), terms * x.largest, grid, terms * x.error / divide)

    def smooth(self, a: str, f: Callable, low: float | None = None, high: float = 8.0) -> Error:
        """A differentiable function of one variable, on values in [low, high]."""
        x = self.stat(a)
        values = parts(self.eval(a))
        if not x.finite or (values > high).any() or (low is not None and (values < low).any()):
            raise Rejected("outside the function's easy range")
        if values.numel() == 0:
            return 0.0
        # The slope within the error, which is small against the range.
        step = max(x.error, 1e-6)
        slope = max((f(values + d) - f(values)).abs().max().item() for d in (step, -step)) / step

        def finish(out: torch.Tensor) -> float:
            bits = BITS[out.dtype]
            largest = max(1.0, parts(out).abs().max().item())
            # Approximations in use are good to a few ulps: 8. Halves compute in float32, and
            # integers as the float they become.
            return 1.5 * slope * x.error + 8 * 2.0 ** (1 - bits) * largest

        return finish

    def quotient(self, a: str, b: str) -> Error:
        x, y = self.stat(a), self.stat(b)
        if y.smallest < 0.25 or not y.finite or not x.finite:
            raise Rejected("divides by nearly nothing")
        passed = x.error / y.smallest + y.error * x.largest / y.smallest**2
        power = y.largest == y.smallest and y.largest in (0.25, 0.5, 1, 2, 4, 8)
        grid = x.grid + 3 if power and x.grid is not None else None
        return self.rounded((x, y), x.largest / y.smallest, grid, passed)

    # Running.

    def writable(self, target: str, reads: Iterable[str]) -> None:
        """Refuses what has no defined order: a write to one place twice, or a read of what is
        being written other than element by element."""
        t = self.eval(target)
        places = addresses(t)
        if len(set(places)) != len(places):
            raise Rejected("writes one place twice")
        for expr in reads:
            r = self.eval(expr)
            if not isinstance(r, torch.Tensor) or key(r) != key(t):
                continue
            same = r.shape == t.shape and addresses(r) == places and r.dtype == t.dtype
            if not same and set(addresses(r)) & set(places):
                raise Rejected("reads what it writes")

    def run(self, s: Statement) -> None:
        """Runs one more statement. After an exception the state is no good any more."""
        if s.writes is not None:
            self.writable(s.writes, s.reads)
        with torch.no_grad():
            error = s.rule(self)
        tensors = [v for v in map(self.eval, s.reads) if isinstance(v, torch.Tensor)]
        loose = any(not t.is_contiguous() or key(t) in self.loose for t in tensors)
        # Held, so that no storage of before dies and lends its address to a new one.
        before = dict(self.ns)
        live = {key(v) for v in before.values() if isinstance(v, torch.Tensor)}
        with torch.no_grad():
            exec(compile(s.source, "<program>", "exec"), self.ns)
        if s.writes is not None:
            target = self.eval(s.writes)
            e = error(target) if callable(error) else error
            size = target.numel() * target.element_size()
            if not s.whole or target.untyped_storage().nbytes() != size:
                e = max(e, self.errors[key(target)])
            self.errors[key(target)] = e
            self.check(target)
        for name in s.outs:
            value = self.ns[name]
            if name not in self.names:
                self.names.append(name)
            if not isinstance(value, torch.Tensor):
                self.scalar_errors[name] = error(value) if callable(error) else error
                if name[0] == "e" and not value:
                    raise Rejected("should raise")
                continue
            if key(value) not in live:
                self.errors[key(value)] = error(value) if callable(error) else error
                self.loose.discard(key(value))
                if loose or not value.is_contiguous():
                    self.loose.add(key(value))
            self.check(value)
        self.names = [n for n in self.names if n in self.ns]
        # An address of what has died may come back as another storage.
        live = {key(v) for v in self.ns.values() if isinstance(v, torch.Tensor)}
        self.errors = {k: e for k, e in self.errors.items() if k in live}
        self.loose &= live

    def check(self, value: torch.Tensor) -> None:
        if value.dtype == torch.complex32:
            raise Rejected("complex32 isn't a dtype of the device, which says so")
        x = parts(value)
        largest = x[x.isfinite()].abs().max().item() if x.isfinite().any() else 0.0
        if value.numel() > 400:
            raise Rejected("too many elements")
        if largest > (LIMIT if value.dtype in BITS else INT_LIMIT):
            raise Rejected("too large")
        error = self.errors[key(value)]
        if error and not x.isfinite().all():
            raise Rejected("infinite and not exact")
        if error > 0.05 * max(largest, 0.1):
            raise Rejected("too little of the value is certain")

    def tolerances(self) -> dict[str, float]:
        """The live variables, and how far each may be from the CPU's."""
        return {n: self.scalar_errors[n] if not isinstance(self.ns[n], torch.Tensor)
                else self.errors[key(self.ns[n])] for n in self.names}
