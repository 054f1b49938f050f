"""The statements that `random_programs` are made of: a function a kind.

Each takes a `Maker` and gives a statement with the rule that bounds its error, or None if no
live variable will do. What turns out to raise or to be ambiguous is dropped by the caller.
"""

import random
from collections.abc import Callable

import torch
from program_state import State, Statement

KINDS: dict[str, Callable[["Maker"], Statement | None]] = {}
WEIGHTED: list[str] = []

FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int64", "int32", "uint8")
SHAPES = ("()", "(3,)", "(4,)", "(2, 3)", "(3, 4)", "(4, 4)", "(3, 1)", "(1, 4)", "(2, 3, 4)",
          "(2, 1, 4)", "(6,)", "(2, 2, 2, 2)")


def kind(weight: int = 2):
    """Registers a kind of statement, chosen `weight` times as often as one of weight 1."""

    def register(make):
        KINDS[make.__name__] = make
        WEIGHTED.extend([make.__name__] * weight)
        return make

    return register


class Maker:
    """The live variables and the choices of one statement."""

    def __init__(self, state: State, rng: random.Random) -> None:
        self.state, self.rng = state, rng
        # Variables are t: tensors, s: Python scalars, c: tensors on the CPU, e: errors.
        taken = [int(n[1:]) for n in state.ns if n[0] in "tsce" and n[1:].isdigit()]
        self.next = max(taken, default=-1) + 1

    def one(self, choices):
        return self.rng.choice(list(choices))

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def value(self, expr: str):
        return self.state.eval(expr)

    def names(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> list[str]:
        ns = self.state.ns
        return [n for n in self.state.names if n[0] == "t" and fits(ns[n])]

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """A variable, the later ones more likely."""
        names = self.names(fits)
        return names[int(len(names) * self.rng.random() ** 0.5)] if names else None

    def operand(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """A variable or a view of one."""
        for _ in range(4):
            name = self.tensor()
            if name is None:
                return None
            expr = self.view(name) if self.chance(0.4) else name
            if expr is not None and fits(self.value(expr)):
                return expr
        return self.tensor(fits)

    def like(self, expr: str, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """An operand that broadcasts with `expr`."""
        shape = self.value(expr).shape

        def both(t):
            try:
                torch.broadcast_shapes(t.shape, shape)
            except RuntimeError:
                return False
            return fits(t)

        return self.operand(both)

    def into(self, expr: str, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """An operand that broadcasts to the shape of `expr`."""
        shape = self.value(expr).shape

        def one(t):
            try:
                return torch.broadcast_shapes(t.shape, shape) == shape and fits(t)
            except RuntimeError:
                return False

        return self.operand(one)

    def scalar(self) -> str:
        known = [n for n in self.state.names if n[0] == "s" and not self.state.scalar_errors[n]
                 and type(self.state.ns[n]) is not bool and abs(self.state.ns[n]) < 50]
        if known and self.chance(0.3):
            return self.one(known)
        # PyTorch's own 0-dim tensors on the CPU count as scalars too.
        return self.one(("2", "3", "-1", "0", "1", "0.5", "1.5", "-0.25", "4.0", "True",
                         "torch.tensor(2)", "torch.tensor(0.5)",
                         "torch.tensor(1.5, device=device)", "torch.tensor(3, device=device)"))

    def dim(self, expr: str) -> int:
        n = max(1, self.value(expr).dim())
        return self.rng.randrange(-n, n)

    def view(self, name: str) -> str | None:
        """A view of `name` as an expression; its strides never decide what it is."""
        t = self.value(name)
        if t.dim() == 0:
            return self.one((f"{name}[None]", f"{name}.expand(3)", f"{name}.unsqueeze(0)"))
        d = self.rng.randrange(t.dim())
        n = t.shape[d]
        i = self.rng.randrange(n)
        choices = [
            f"{name}[{', '.join(self.index(m) for m in t.shape[:self.rng.randint(1, t.dim())])}]",
            f"{name}[..., {self.index(t.shape[-1])}]",
            f"{name}.select({d}, {i})",
            f"{name}.narrow({d}, {i}, {self.rng.randint(1, n - i)})",
            f"{name}.unsqueeze({self.one((0, -1))})",
            f"{name}.squeeze()",
            f"{name}.unbind({d})[{i}]",
            f"{name}.unfold({d}, {self.rng.randint(1, n)}, {self.rng.randint(1, 2)})",
            f"{name}.chunk(2, {d})[{0 if n == 1 else self.one((0, -1))}]",
            f"{name}.split({self.rng.randint(1, n)}, {d})[-1]",
            f"{name}.movedim(0, -1)",
            f"{name}.expand({self.one((2, 3))}, {', '.join(['-1'] * t.dim())})",
        ]
        if t.dim() >= 2:
            order = list(range(t.dim()))
            self.rng.shuffle(order)
            choices += [
                f"{name}.transpose(0, {self.one((1, -1))})",
                f"{name}.permute{tuple(order)}",
                f"{name}.mT",
                f"{name}.diagonal({self.rng.randint(-1, 1)})",
            ]
        return self.one(choices)

    def index(self, n: int) -> str:
        i = self.rng.randrange(n)
        return self.one((":", "1:" if n > 1 else ":", "::2", f"{i}", f"{i}:{n}", f":{i + 1}",
                         f"{i - n}:", "1::2" if n > 1 else ":"))

    def new(self, expr: str, rule, reads=(), prefix: str = "t") -> Statement:
        """Binds `expr` to a new variable, or sometimes to an old name."""
        name = f"{prefix}{self.next}"
        old = [n for n in self.state.names if n[0] == prefix]
        # More names than this only make programs slow; losing one is worth testing too.
        if old and (self.chance(0.1) or len(old) > 12):
            name = self.one(old)
        return Statement(f"{name} = {expr}", rule, tuple(reads), (name,))

    def target(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        """Where to write: a variable, or a view of one."""
        return self.operand(fits)

    def write(self, source: str, target: str, rule, reads=(), whole: bool = False) -> Statement:
        return Statement(source, rule, tuple(reads), (), target, whole)


def floating(t: torch.Tensor) -> bool:
    return t.is_floating_point()


def real(t: torch.Tensor) -> bool:
    return not t.is_complex()


def number(t: torch.Tensor) -> bool:
    return not t.is_complex() and t.dtype != torch.bool


def integral(t: torch.Tensor) -> bool:
    return not t.is_complex() and not t.is_floating_point()


def is_tensor(m: Maker, expr: str) -> bool:
    return isinstance(m.value(expr), torch.Tensor)


# Making tensors.


def literal_of(m: Maker, dtype: str, shape: tuple[int, ...]) -> str:
    n = torch.Size(shape).numel()
    r = m.rng
    if dtype == "bool":
        values = [r.random() < 0.5 for _ in range(n)]
    elif dtype == "uint8":
        values = [r.choice((0, 1, 2, 3, 7, 250)) for _ in range(n)]
    elif dtype.startswith("int"):
        values = [r.randint(-6, 6) for _ in range(n)]
    elif dtype == "complex64":
        values = [complex(r.randint(-4, 4) / 2, r.randint(-4, 4) / 2) for _ in range(n)]
    else:
        values = [r.randint(-16, 16) / 4 for _ in range(n)]
        if n and r.random() < 0.08:
            values[r.randrange(n)] = r.choice((float("inf"), float("-inf"), float("nan"), -0.0))
    return repr(torch.tensor(values).reshape(shape).tolist() if n else values).replace(
        "inf", "float('inf')").replace("nan", "float('nan')")


@kind(8)
def literal(m: Maker) -> Statement:
    dtype = m.one((*FLOATS, *FLOATS, *INTS, "bool", "complex64"))
    shape = m.value(m.one(SHAPES))
    text = literal_of(m, dtype, shape)
    where = m.one((f"torch.tensor({text}, dtype=torch.{dtype}, device=device)",
                   f"torch.tensor({text}, dtype=torch.{dtype}).to(device)"))
    return m.new(where, lambda s: 0.0)


@kind(3)
def factory(m: Maker) -> Statement:
    shape = m.one(SHAPES)
    dtype = f"dtype=torch.{m.one((*FLOATS, *INTS))}, device=device"
    return m.new(m.one((
        f"torch.zeros({shape}, {dtype})", f"torch.ones({shape}, {dtype})",
        f"torch.full({shape}, {m.one(('2', '1.5', '3.0'))}, device=device)",
        f"torch.arange({m.one((3, 4, 6))}, {dtype})", "torch.arange(0, 3, 0.5, device=device)",
        f"torch.eye({m.one((3, 4))}, {m.one((3, 4))}, {dtype})",
        f"torch.empty({shape}, {dtype}).fill_({m.one((0, 2, 3))})",
        "torch.linspace(-1, 1, 3, device=device)",
    )), lambda s: 0.0)


@kind(1)
def factory_like(m: Maker) -> Statement | None:
    a = m.operand()
    return a and m.new(m.one((f"torch.zeros_like({a})", f"torch.ones_like({a})",
                              f"{a}.new_ones(2, 3)", f"{a}.new_full((4,), 2)",
                              f"torch.full_like({a}, 3)")), lambda s: 0.0, (a,))


@kind(1)
def drop(m: Maker) -> Statement | None:
    names = m.names()
    return Statement(f"del {m.one(names)}", lambda s: 0.0) if len(names) > 4 else None


@kind(1)
def alias(m: Maker) -> Statement | None:
    a = m.tensor()
    return a and m.new(m.one((a, f"{a}.detach()", f"{a}.view_as({a})")), lambda s: s.same(a), (a,))


# Views.


@kind(8)
def view(m: Maker) -> Statement | None:
    a = m.tensor()
    return a and m.new(m.view(a), lambda s: s.same(a), (a,))


@kind(4)
def reshape(m: Maker) -> Statement | None:
    """Views or copies that the strides decide: of what has PyTorch's own strides alone."""
    a = m.operand()
    if a is None:
        return None
    n = m.value(a).numel()
    shape = m.one([s for s in ((-1,), (n,), (1, n), (2, n // 2), (n // 2, 2), (2, 2, n // 4))
                   if torch.Size(s).numel() in (n, -1)])
    expr = m.one((f"{a}.view{shape}", f"{a}.reshape{shape}", f"{a}.flatten()", f"{a}.ravel()",
                  f"{a}.contiguous()", f"{a}.flatten().unflatten(0, {shape})"))
    if m.chance(0.3):
        return m.new(expr.replace(".view(", ".reshape(") + ".clone()", lambda s: s.same(a), (a,))

    def rule(s):
        s.fixed(a)
        return s.same(a)

    return m.new(expr, rule, (a,))


@kind(3)
def as_strided(m: Maker) -> Statement | None:
    a = m.tensor(lambda t: t.dim() and t.is_contiguous() and t.numel() >= 4)
    if a is None:
        return None
    t = m.value(a)
    size, stride = m.one((((2, 2), (2, 1)), ((2, 2), (1, 1)), ((2, 2), (1, 2)), ((3,), (1,)),
                          ((2, 2), (0, 1)), ((4,), (1,)), ((2,), (3,))))
    offset = m.one((0, 0, t.storage_offset()))

    def rule(s):
        s.fixed(a)
        return s.same(a)

    at = f"{size}, {stride}, {offset}" if offset or m.chance(0.5) else f"{size}, {stride}"
    return m.new(f"{a}.as_strided({at})", rule, (a,))


@kind(2)
def complex_views(m: Maker) -> Statement | None:
    a = m.operand(torch.is_complex)
    if a is None:
        return make_complex(m)
    return m.new(m.one((f"torch.view_as_real({a})", f"{a}.real", f"{a}.imag",
                        f"torch.view_as_complex(torch.view_as_real({a}))")),
                 lambda s: s.same(a), (a,))


@kind(1)
def conjugate(m: Maker) -> Statement | None:
    a = m.operand(torch.is_complex)
    if a is None:
        return make_complex(m)
    # A lazy conjugate is never written through: which of the two is the base's value is
    # PyTorch's dispatcher's business.
    return m.new(m.one((f"{a}.conj().resolve_conj()", f"torch.conj_physical({a})")),
                       lambda s: s.same(a), (a,))


@kind(1)
def make_complex(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dtype == torch.float32)
    b = a and m.like(a, lambda t: t.dtype == torch.float32)
    return b and m.new(f"torch.complex({a}, {b})", lambda s: s.same(a, b), (a, b))


# Elementwise.


def binary_rule(op: str, a: str, b: str):
    if op == "*":
        return lambda s: s.product(a, b)
    # The larger of two as well: promotion may round the one that is chosen, as in a sum.
    return lambda s: s.add(a, b)


@kind(12)
def arithmetic(m: Maker) -> Statement | None:
    a = m.operand()
    b = a and (m.scalar() if m.chance(0.35) else m.like(a))
    if b is None:
        return None
    op = m.one("+-*")
    left, right = (a, b) if m.chance(0.7) else (b, a)
    return m.new(f"{left} {op} {right}", binary_rule(op, left, right),
                 [e for e in (a, b) if is_tensor(m, e)])


@kind(2)
def scaled_add(m: Maker) -> Statement | None:
    a = m.operand()
    b = a and m.like(a)
    if b is None:
        return None
    alpha = m.one((2, -1, 0.5))
    op = m.one(("add", "sub"))
    return m.new(f"torch.{op}({a}, {b}, alpha={alpha})", lambda s: s.add(a, b, alpha), (a, b))


@kind(3)
def larger_of(m: Maker) -> Statement | None:
    a = m.operand(real)
    b = a and m.like(a, real)
    if b is None:
        return None
    op = m.one(("maximum", "minimum", "fmax", "fmin"))
    return m.new(f"torch.{op}({a}, {b})", binary_rule(op, a, b), (a, b))


@kind(3)
def divide(m: Maker) -> Statement | None:
    a = m.operand()
    b = a and (m.one(("2", "0.5", "3", "4", "torch.tensor(2.0)")) if m.chance(0.5) else m.like(a))
    return b and m.new(f"{a} / {b}", lambda s: s.quotient(a, b),
                       [e for e in (a, b) if is_tensor(m, e)])


@kind(3)
def integer_divide(m: Maker) -> Statement | None:
    a = m.operand(number)
    b = a and (m.one(("2", "3", "-2", "0.5", "1.5")) if m.chance(0.6) else m.like(a, number))
    if b is None:
        return None

    def rule(s):
        s.exact(a, b)
        s.quotient(a, b)  # Not by zero.
        return 0.0

    return m.new(m.one((f"{a} // {b}", f"{a} % {b}", f"torch.fmod({a}, {b})",
                        f"torch.div({a}, {b}, rounding_mode='trunc')")),
                 rule, [e for e in (a, b) if is_tensor(m, e)])


@kind(3)
def power(m: Maker) -> Statement | None:
    a = m.operand(number)
    if a is None:
        return None
    return m.one((
        m.new(f"{a} ** 2", lambda s: s.product(a, a), (a,)),
        m.new(f"{a}.square()", lambda s: s.product(a, a), (a,)),
        m.new(f"torch.pow({a}.float(), 0.5)", lambda s: s.smooth(a, lambda x: x**0.5, 0.25), (a,)),
        m.new(f"torch.pow(2, {a}.clamp(0, 3))", lambda s: s.exact(a) or
              s.smooth(f"{a}.clamp(0, 3)", lambda x: 2**x, -20, 4), (a,)),
    ))


@kind(6)
def unary_exact(m: Maker) -> Statement | None:
    a = m.operand(number)
    if a is None:
        return None
    f = m.one(("torch.neg({})", "{}.abs()", "torch.relu({})", "-{}", "{}.clamp(-1, 2)",
               "{}.clamp(min=0)", "torch.positive({})", "{}.clone()", "torch.clamp_max({}, 1.5)",
               "torch.nn.functional.relu6({})"))
    return m.new(f.format(a), lambda s: s.same(a), (a,))


@kind(4)
def unary_steps(m: Maker) -> Statement | None:
    a = m.operand(number)
    if a is None:
        return None
    f = m.one(("torch.floor({})", "torch.ceil({})", "torch.round({})", "torch.trunc({})",
               "torch.sign({})", "torch.frac({}.float())", "torch.isnan({})", "torch.isfinite({})",
               "torch.nan_to_num({}, 1.0, 2.0, 3.0)", "torch.heaviside({0}, torch.ones_like({0}))",
               "torch.signbit({})"))
    return m.new(f.format(a), lambda s: s.exact(a), (a,))


SMOOTH = (
    ("torch.exp({})", torch.exp, -8.0, 3.0), ("torch.log({})", torch.log, 0.25, 50.0),
    ("torch.sqrt({})", torch.sqrt, 0.25, 50.0), ("torch.rsqrt({})", torch.rsqrt, 0.25, 50.0),
    ("torch.sin({})", torch.sin, -8.0, 8.0), ("torch.cos({})", torch.cos, -8.0, 8.0),
    ("torch.tanh({})", torch.tanh, -50.0, 50.0), ("torch.erf({})", torch.erf, -50.0, 50.0),
    ("torch.sigmoid({})", torch.sigmoid, -50.0, 50.0), ("torch.atan({})", torch.atan, -50.0, 50.0),
    ("torch.reciprocal({})", torch.reciprocal, 0.25, 50.0),
    ("torch.expm1({})", torch.expm1, -8.0, 3.0), ("torch.log1p({})", torch.log1p, -0.5, 50.0),
    ("torch.nn.functional.gelu({})", torch.nn.functional.gelu, -8.0, 8.0),
    ("torch.nn.functional.silu({})", torch.nn.functional.silu, -8.0, 8.0),
    ("torch.nn.functional.softplus({})", torch.nn.functional.softplus, -8.0, 8.0),
)


@kind(5)
def unary_smooth(m: Maker) -> Statement | None:
    a = m.operand(lambda t: number(t) or t.dtype == torch.bool)
    if a is None:
        return None
    text, f, low, high = m.one(SMOOTH)
    if "functional" in text and not floating(m.value(a)):
        return None
    return m.new(text.format(a), lambda s: s.smooth(a, f, low, high), (a,))


@kind(5)
def compare(m: Maker) -> Statement | None:
    a = m.operand(real)
    b = a and (m.scalar() if m.chance(0.5) else m.like(a, real))
    if b is None:
        return None
    return m.new(f"{a} {m.one(('<', '<=', '>', '>=', '==', '!='))} {b}",
                 lambda s: s.exact(a, b), [e for e in (a, b) if is_tensor(m, e)])


@kind(3)
def bits(m: Maker) -> Statement | None:
    a = m.operand(integral)
    b = a and (m.one(("1", "3", "True")) if m.chance(0.3) else m.like(a, integral))
    if b is None:
        return None
    return m.new(m.one((f"{a} & {b}", f"{a} | {b}", f"{a} ^ {b}", f"~{a}", f"{a} << 1",
                        f"{a} >> 1", f"torch.logical_and({a}, {a})", f"torch.logical_not({a})")),
                 lambda s: 0.0, [e for e in (a, b) if is_tensor(m, e)])


@kind(5)
def cast(m: Maker) -> Statement | None:
    a = m.operand(real)
    if a is None:
        return None
    if m.chance(0.3):
        to = m.one((".long()", ".to(torch.int32)", ".to(torch.uint8)", ".int()"))
        return m.new(f"{a}{to}", lambda s: s.whole_number(a), (a,))
    if m.chance(0.15):
        return m.new(f"{a}.bool()", lambda s: s.exact(a), (a,))
    to = m.one((".float()", ".double()", ".half()", ".to(torch.bfloat16)",
                ".to(device=device, dtype=torch.float64)"))
    return m.new(f"{a}{to}", lambda s: s.add(a, "0"), (a,))
