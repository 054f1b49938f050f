"""Kinds of random statements that write in place, read on the host, decide, or must fail."""

import torch
from program_state import Rejected, Statement
from random_statements import (
    Maker,
    binary_rule,
    floating,
    integral,
    is_tensor,
    kind,
    number,
    real,
)


def cast_to(target: str, rule):
    """What is written must have a meaning in the target's dtype."""

    def checked(s):
        error = rule(s)
        if integral(s.eval(target)) and (error if isinstance(error, float) else 0.0):
            raise Rejected("integers of inexact values")
        return error

    return checked


@kind(10)
def write_arithmetic(m: Maker) -> Statement | None:
    a = m.target()
    b = a and (m.scalar() if m.chance(0.3) else m.into(a))
    if b is None:
        return None
    op, method = m.one((("+", "add_"), ("-", "sub_"), ("*", "mul_")))
    rule = binary_rule(op, a, b)
    reads = [b] if is_tensor(m, b) else []
    # An augmented assignment to an expression needs an index; to a name it's the tensor's own.
    if m.chance(0.5) and (a.endswith("]") or a.isidentifier()) and ".unbind" not in a:
        source = f"{a} {op}= {b}"
    else:
        source = f"{a}.{method}({b})"
    return m.write(source, a, rule, reads)


@kind(5)
def write_unary(m: Maker) -> Statement | None:
    a = m.target(number)
    if a is None:
        return None
    f = m.one(("neg_()", "abs_()", "relu_()", "clamp_(-2, 2)", "clamp_min_(0)", "mul_(2)",
               "add_(1)", "sub_(0.5)", "zero_()", "fill_(3)", "fill_(-1)", "floor_()", "trunc_()",
               "sign_()", "square_()", "div_(2)"))

    def rule(s):
        if f in ("floor_()", "trunc_()", "sign_()"):
            return s.exact(a)
        if f == "square_()":
            return s.product(a, a)
        if f in ("zero_()", "fill_(3)", "fill_(-1)"):
            return 0.0
        if f == "mul_(2)":
            return s.product(a, "2")
        if f == "div_(2)":
            return s.quotient(a, "2")
        return s.add(a, "0.5")

    return m.write(f"{a}.{f}", a, rule, whole=f in ("zero_()", "fill_(3)", "fill_(-1)"))


@kind(3)
def write_smooth(m: Maker) -> Statement | None:
    a = m.target(floating)
    f, low, high = m.one((("exp_", -8.0, 3.0), ("tanh_", -50.0, 50.0), ("sigmoid_", -50.0, 50.0),
                          ("sqrt_", 0.25, 50.0), ("sin_", -8.0, 8.0)))
    return a and m.write(
        f"{a}.{f}()", a, lambda s: s.smooth(a, getattr(torch, f[:-1]), low, high))


@kind(6)
def write_copy(m: Maker) -> Statement | None:
    a = m.target()
    # From complex to real, PyTorch warns.
    b = a and m.into(a, lambda t: real(t) or not real(m.value(a)))
    if b is None:
        return None

    def rule(s):
        if integral(s.eval(a)) and not integral(s.eval(b)):
            return s.whole_number(b)
        return s.add(b, "0")

    source = f"{a}[...] = {b}" if m.chance(0.5) else f"{a}.copy_({b})"
    return m.write(source, a, rule, (b,), whole=True)


@kind(4)
def write_masked(m: Maker) -> Statement | None:
    a = m.target()
    if a is None:
        return None
    mask = m.into(a, lambda t: t.dtype == torch.bool)
    if mask is None or m.chance(0.3):
        mask = f"({a} > 0)" if real(m.value(a)) else None
    if mask is None:
        return None

    def rule(s):
        s.exact(mask if mask[0] != "(" else a)
        return 0.0

    value = m.one(("0", "2", "-1", "1"))
    whole_shape = m.value(mask).shape == m.value(a).shape
    source = f"{a}.masked_fill_({mask}, {value})"
    if whole_shape and m.chance(0.5):
        source = f"{a}[{mask}] = {value}"
    return m.write(source, a, rule, () if mask[0] == "(" else (mask,))


@kind(4)
def write_indexed(m: Maker) -> Statement | None:
    """Writes by index tensors: of distinct places, or accumulating exactly."""
    a = m.target(lambda t: t.dim() >= 1 and number(t))
    if a is None:
        return None
    t = m.value(a)
    n = t.shape[0]
    count = m.rng.randint(1, n)
    rows = m.rng.sample(range(n), count)
    again = [m.rng.randrange(n) for _ in range(m.rng.randint(1, 4))]
    value = m.one(("2", "0.5", "-1")) if floating(t) else "2"

    def index(values):
        return f"torch.tensor({values}, device=device)"

    def scalar_like():
        return f"torch.full({tuple([len(again), *t.shape[1:]])}, {value}, " \
               f"dtype={t.dtype}, device=device)"

    def sums(s):
        # Each index at most four times.
        return s.total(a, 1) if not s.error(a) else s.add(a, "8")

    def accumulates(s):
        return s.add(a, "8.5")

    return m.one((
        m.write(f"{a}[{index(rows)}] = {value}", a, lambda s: 0.0),
        m.write(f"{a}[{index(rows)}] += {value}", a, accumulates),
        m.write(f"{a}.index_fill_(0, {index(rows)}, {value})", a, lambda s: 0.0),
        m.write(f"{a}.index_put_(({index(again)},), {scalar_like()}, accumulate=True)", a,
                accumulates),
        m.write(f"{a}.index_add_(0, {index(again)}, {scalar_like()})", a, accumulates),
        m.write(f"{a}.index_copy_(0, {index(again[:1])}, {scalar_like()}[:1])", a, lambda s: 0.0),
    ))


@kind(2)
def write_scatter(m: Maker) -> Statement | None:
    a = m.target(lambda t: t.dim() >= 1 and number(t))
    if a is None:
        return None
    t = m.value(a)
    d = m.rng.randrange(t.dim())
    # One index along the dim, so no place is hit twice.
    shape = [1 if i == d else n for i, n in enumerate(t.shape)]
    index = f"torch.full({tuple(shape)}, {m.rng.randrange(t.shape[d])}, device=device)"
    return m.one((
        m.write(f"{a}.scatter_({d}, {index}, 2)", a, lambda s: 0.0),
        m.write(f"{a}.scatter_add_({d}, {index}, torch.ones({tuple(shape)}, dtype={t.dtype}, "
                "device=device))", a, lambda s: s.add(a, "1")),
    ))


@kind(4)
def write_out(m: Maker) -> Statement | None:
    """`out=` into a variable or a view of the right shape."""
    a = m.operand(number)
    b = a and m.like(a, number)
    if b is None:
        return None
    shape = torch.broadcast_shapes(m.value(a).shape, m.value(b).shape)
    dtype = torch.result_type(m.value(a), m.value(b))
    out = m.target(lambda t: t.shape == shape and torch.can_cast(dtype, t.dtype))
    if out is None:
        return None
    op, symbol = m.one((("add", "+"), ("sub", "-"), ("mul", "*"), ("maximum", "maximum")))

    def rule(s):
        finish = binary_rule(symbol, a, b)(s)
        # Computed in the operands' common dtype, whatever `out` is.
        return lambda out: max(finish(out), finish(torch.empty(0, dtype=dtype)))

    return m.write(f"torch.{op}({a}, {b}, out={out})", out, rule, (a, b))


@kind(3)
def write_ternary(m: Maker) -> Statement | None:
    a = m.target(floating)
    b = a and m.into(a, floating)
    c = b and m.into(a, floating)
    if c is None:
        return None

    def rule(s):
        if s.error(a) or s.error(b) or s.error(c):
            x = s.stat(a)
            finish = s.product(b, c)
            bits = {torch.float16: 11, torch.bfloat16: 8, torch.float64: 53}
            ulp = 2.0 ** (1 - bits.get(s.eval(a).dtype, 24))
            return lambda out: x.error + finish(out) + 3 * ulp * (
                x.largest + s.stat(b).largest * s.stat(c).largest)
        return s.product(b, c, 1, plus=a)

    return m.write(f"{a}.addcmul_({b}, {c})", a, rule, (b, c))


@kind(3)
def loop(m: Maker) -> Statement | None:
    """A repetition in the trace."""
    n = m.rng.randint(2, 4)
    a = m.tensor(floating)
    b = a and m.into(a, floating)
    if b is None or not b.isidentifier() or b == a:
        return None

    def rule(s):
        x, y = s.stat(a), s.stat(b)
        grid = None if x.grid is None or y.grid is None else max(x.grid, y.grid)
        return s.rounded((x, y), x.largest + n * y.largest, grid, x.error + n * y.error)

    if m.chance(0.5):
        return m.write(f"for _ in range({n}):\n    {a} += {b}", a, rule, (b,))
    return Statement(f"t{m.next} = {a}\nfor _ in range({n}):\n    t{m.next} = t{m.next} + {b}",
                     rule, (a, b), (f"t{m.next}",))


# Reads on the host.


@kind(4)
def read(m: Maker) -> Statement | None:
    a = m.operand(real)
    if a is None:
        return None
    name = f"s{m.next}"
    t = m.value(a)
    zeros = ", ".join("0" * t.dim())
    element = f"{a}[{zeros}]" if t.dim() else a
    number_read = Statement(f"{name} = {element}.item()", lambda s: s.same(a), (a,), (name,))
    return m.one((
        number_read,
        number_read,
        Statement(f"{name} = float({element})", lambda s: s.same(a), (a,), (name,)),
        Statement(f"c{m.next} = torch.tensor({a}.tolist(), dtype={t.dtype})",
                  lambda s: s.same(a), (a,), (f"c{m.next}",)),
        # Cloned, since the CPU's own `cpu()` is an alias.
        Statement(f"c{m.next} = {a}.cpu().clone()", lambda s: s.same(a), (a,), (f"c{m.next}",)),
    ))


@kind(2)
def round_trip(m: Maker) -> Statement | None:
    a = m.operand()
    return a and m.new(f"{a}.cpu().clone().to(device)", lambda s: s.same(a), (a,))


@kind(3)
def decide(m: Maker) -> Statement | None:
    a = m.operand(number)
    b = a and m.operand(number)
    if b is None:
        return None
    test = m.one((f"{a}.sum() > 0", f"({a} > 0).any()", f"bool({a}.amax() > 1)",
                  f"torch.equal({a}, {b})", f"{a}.sum().item() > 2", f"torch.allclose({a}, {a})"))

    def rule(s):
        s.exact(a, b)
        return s.add(b, "1")

    name = f"t{m.next}"
    return Statement(f"if {test}:\n    {name} = {b} + 1\nelse:\n    {name} = {b} - 1",
                     rule, (a, b), (name,))


# What must raise, and leave everything as it was.


@kind(2)
def error(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dim() >= 1 and number(t))
    if a is None:
        return None
    t = m.value(a)
    n = t.shape[-1]
    bad = f"torch.ones({n + 2}, device=device)" if n > 1 else None
    choices = [
        f"{a}.view(-1, {t.numel() + 1})",
        f"{a}.sum(9)",
        f"{a}.transpose(0, 7)",
        f"{a}[{t.shape[0] + 3}]",
        f"{a}.expand({n + 5}, -1, 2, -1)[0]",
        f"{a}.unsqueeze(-1).expand({', '.join(map(str, t.shape))}, 3).add_(1)",
        f"torch.cat([{a}, {a}[None]])",
        f"torch.ones(2, 3, device=device) @ torch.ones({a}.numel() + 7, 2, device=device)",
        f"{a}.reshape(7, 11, 13)",
        f"torch.ones(3, dtype=torch.bool, device=device) - ({a}.flatten()[0] > 0)",
        "torch.ones(2, dtype=torch.int64, device=device).add_(1.5)",
        "torch.ones(2, device=device).bitwise_and(torch.ones(2, device=device))",
    ]
    if bad is not None:
        choices += [f"{a} + {bad}", f"{a}.copy_({bad})", f"{a}.mul_({bad})",
                    f"torch.where({bad} > 0, {a}, {a})", f"{a}[..., {bad} > 0]"]
    name = f"e{m.next}"
    call = m.one(choices)

    return Statement(f"{name} = raises(lambda: {call})", lambda s: 0.0, (a,), (name,))
