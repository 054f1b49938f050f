"""Kinds of random statements that reduce, scan, sort, multiply matrices, join and index."""

import torch
from program_state import BITS, Rejected, Statement, parts
from random_statements import Maker, floating, integral, kind, make_complex, number, real


def extent(m: Maker, a: str) -> tuple[str, int]:
    """Reduced dims as arguments, and the count of terms of each sum."""
    t = m.value(a)
    if t.dim() == 0 or m.chance(0.35):
        return "", max(1, t.numel())
    d = m.dim(a)
    keep = m.one(("", ", keepdim=True"))
    if t.dim() >= 2 and m.chance(0.3):
        return f"(0, 1){keep}", t.shape[0] * t.shape[1]
    return f"{d}{keep}", t.shape[d]


@kind(6)
def total(m: Maker) -> Statement | None:
    a = m.operand(number if m.chance(0.8) else lambda t: True)
    if a is None:
        return None
    dims, n = extent(m, a)
    if floating(m.value(a)) and m.chance(0.4):
        return m.new(f"{a}.mean({dims})", lambda s: s.total(a, n, n), (a,))
    return m.new(f"{a}.sum({dims})", lambda s: s.total(a, n), (a,))


@kind(4)
def extreme(m: Maker) -> Statement | None:
    a = m.operand(number)
    if a is None:
        return None
    dims, _ = extent(m, a)
    return m.new(f"{a}.{m.one(('amax', 'amin'))}({dims})", lambda s: s.same(a), (a,))


@kind(3)
def extreme_with_place(m: Maker) -> Statement | None:
    a = m.operand(lambda t: number(t) and t.dim() >= 1)
    if a is None:
        return None
    d = m.dim(a)
    return m.one((
        m.new(f"{a}.{m.one(('argmax', 'argmin'))}({m.one((d, ''))})", lambda s: s.exact(a), (a,)),
        m.new(f"{a}.{m.one(('max', 'min'))}({d})[0]", lambda s: s.same(a), (a,)),
        m.new(f"{a}.{m.one(('max', 'min'))}({d})[1]", lambda s: s.exact(a), (a,)),
        m.new(f"torch.count_nonzero({a}, {d})", lambda s: s.exact(a), (a,)),
    ))


@kind(2)
def any_all(m: Maker) -> Statement | None:
    a = m.operand(real)
    if a is None:
        return None
    d = m.dim(a)
    return m.new(f"{a}.{m.one(('any', 'all'))}({m.one((d, ''))})", lambda s: s.exact(a), (a,))


@kind(2)
def product_of(m: Maker) -> Statement | None:
    a = m.operand(lambda t: number(t) and t.dim() >= 1 and t.shape[-1] <= 4)
    if a is None:
        return None

    def rule(s):
        x = s.stat(a)
        n = s.eval(a).shape[-1]
        if not x.finite:
            s.exact(a)
        big = max(1.0, x.largest) ** n
        grid = None if x.grid is None else n * x.grid
        passed = n * x.error * max(1.0, x.largest + x.error) ** (n - 1)
        finish = s.rounded((x,), big, grid, passed)
        return lambda out: n * finish(out)

    return m.new(f"{a}.prod(-1)", rule, (a,))


@kind(3)
def spread(m: Maker) -> Statement | None:
    """Normalisations: nothing but their size is exact."""
    a = m.operand(lambda t: floating(t) and t.dim() >= 1 and t.shape[-1] >= 2)
    if a is None:
        return None
    n = m.value(a).shape[-1]
    f = m.one(("torch.softmax({}, -1)", "torch.log_softmax({}, -1)", "torch.logsumexp({}, -1)",
               "{}.var(-1)", "torch.linalg.vector_norm({}, dim=-1)",
               "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], eps=1.0)"))

    def rule(s):
        x = s.stat(a)
        if not x.finite or x.largest > 50:
            raise Rejected("too large")
        # The slope of each in each input is at most 1 (2, 1), var's 2 max / (n-1) · 2.
        slope = 8 * x.largest + 4 if ".var" in f else 4.0
        size = max(1.0, x.largest) ** 2 if ".var" in f else max(1.0, x.largest)

        def finish(out):
            return slope * n * x.error + 8 * n * 2.0 ** (1 - BITS[out.dtype]) * size

        return finish

    return m.new(f.format(a), rule, (a,))


@kind(3)
def scan(m: Maker) -> Statement | None:
    a = m.operand(lambda t: number(t) and t.dim() >= 1)
    if a is None:
        return None
    d = m.dim(a)
    n = m.value(a).shape[d]
    return m.one((
        m.new(f"torch.cumsum({a}, {d})", lambda s: s.total(a, n), (a,)),
        m.new(f"torch.cumsum({a}, {d})", lambda s: s.total(a, n), (a,)),
        m.new(f"torch.cummax({a}, {d})[0]", lambda s: s.same(a), (a,)),
    ))


@kind(3)
def order(m: Maker) -> Statement | None:
    a = m.operand(lambda t: number(t) and t.dim() >= 1)
    if a is None:
        return None
    d = m.dim(a)
    k = m.rng.randint(1, m.value(a).shape[d])
    # Where equal values go isn't defined unless the sort is stable.
    return m.new(m.one((f"torch.sort({a}, dim={d}, stable=True)[1]", f"torch.sort({a}, {d})[0]",
                        f"torch.sort({a}, stable=True, dim={d}, descending=True)[0]",
                        f"torch.topk({a}, {k}, {d})[0]",
                        f"torch.argsort({a}, dim={d}, stable=True)")),
                 lambda s: s.exact(a), (a,))


# Products.


@kind(6)
def matmul(m: Maker) -> Statement | None:
    a = m.operand(lambda t: floating(t) and t.dim() >= 1)
    if a is None:
        return None
    t = m.value(a)
    n = t.shape[-1]

    def fits(u):
        if u.dtype != t.dtype or u.dim() == 0 or u.shape[-2 if u.dim() > 1 else -1] != n:
            return False
        try:
            torch.matmul(t, u)
        except RuntimeError:
            return False
        return True

    b = m.operand(fits)
    if b is None:
        name = f"torch.ones({n}, {m.one((1, 3))}, dtype={t.dtype}, device=device)"
        return m.new(f"{a} @ {name}", lambda s: s.product(a, "1.0", n), (a,))
    u = m.value(b)
    choices = [f"{a} @ {b}", f"torch.matmul({a}, {b})"]
    if t.dim() == 2 and u.dim() == 2:
        choices += [f"torch.mm({a}, {b})", f"torch.einsum('ij,jk->ki', {a}, {b})"]
    if t.dim() == 2 and u.dim() == 1:
        choices.append(f"torch.mv({a}, {b})")
    return m.new(m.one(choices), lambda s: s.product(a, b, n), (a, b))


@kind(2)
def matmul_plus(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dtype == torch.float32 and t.dim() == 2)
    if a is None:
        return None
    n, k = m.value(a).shape
    b = m.operand(lambda t: t.dtype == torch.float32 and t.dim() == 2 and t.shape[0] == k)
    b = b or f"torch.full(({k}, 3), 0.5, device=device)"
    c = m.one((f"torch.ones({m.value(b).shape[1]}, device=device)", f"torch.ones({n}, 1)"
               ".to(device)"))
    return m.new(m.one((f"torch.addmm({c}, {a}, {b})",
                        f"torch.nn.functional.linear({a}, ({b}).mT) + {c}")),
                 lambda s: s.product(a, b, k, plus=c), (a,))


@kind(2)
def outer(m: Maker) -> Statement | None:
    a = m.operand(lambda t: floating(t) and t.dim() == 1)
    b = a and m.operand(lambda t: floating(t) and t.dim() == 1)
    return b and m.new(f"torch.outer({a}, {b})", lambda s: s.product(a, b), (a, b))


# Joins, choices and indexing.


@kind(4)
def cat(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dim() >= 1)
    if a is None:
        return None
    shape = m.value(a).shape
    d = m.rng.randrange(len(shape))

    def fits(t):
        return t.dim() == len(shape) and all(
            i == d or n == k for i, (n, k) in enumerate(zip(t.shape, shape, strict=True)))

    b = m.operand(fits) or a
    # Promotion may round, as in a sum.
    return m.new(f"torch.cat([{a}, {b}], {d})", lambda s: s.add(a, b), (a, b))


@kind(3)
def stack(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dim() <= 3)
    if a is None:
        return None
    t = m.value(a)
    b = m.operand(lambda u: u.shape == t.shape and u.dtype == t.dtype) or a
    return m.new(f"torch.stack([{a}, {b}], {m.one((0, -1))})", lambda s: s.same(a, b), (a, b))


@kind(4)
def where(m: Maker) -> Statement | None:
    a = m.operand(real)
    b = a and (m.one(("0", "1.5", "-1")) if m.chance(0.3) else m.like(a, real))
    mask = a and m.like(a, lambda t: t.dtype == torch.bool)
    if b is None:
        return None
    reads = [e for e in (a, b) if isinstance(m.value(e), torch.Tensor)]
    if mask is None:
        def rule(s):
            s.exact(a)
            return s.add(a, b)

        return m.new(f"torch.where({a} > 0, {a}, {b})", rule, reads)
    return m.new(f"torch.where({mask}, {a}, {b})", lambda s: s.add(a, b), [mask, *reads])


@kind(4)
def pick(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dim() >= 1)
    if a is None:
        return None
    t = m.value(a)
    d = m.rng.randrange(t.dim())
    n = t.shape[d]
    some = [m.rng.randrange(n) for _ in range(m.rng.randint(1, 4))]
    index = f"torch.tensor({some}, device=device)"
    shape = [len(some) if i == d else 1 for i in range(t.dim())]
    spread_index = f"{index}.reshape({shape}).expand(" + ", ".join(
        "-1" if i == d else str(k) for i, k in enumerate(t.shape)) + ")"
    first = [m.rng.randrange(-t.shape[0], t.shape[0]) for _ in range(3)]
    return m.new(m.one((
        f"torch.index_select({a}, {d}, {index})",
        f"torch.gather({a}, {d}, {spread_index})",
        f"{a}[{'..., ' if d == t.dim() - 1 else ':, ' * d}{index}]",
        f"{a}[torch.tensor({first}, device=device)]",
        f"torch.take({a}, torch.tensor({[m.rng.randrange(t.numel()) for _ in range(3)]}, "
        "device=device))",
    )), lambda s: s.same(a), (a,))


@kind(2)
def pick_masked(m: Maker) -> Statement | None:
    """A result whose size depends on values."""
    a = m.operand(number)
    if a is None:
        return None
    return m.new(m.one((f"{a}[{a} > 0]", f"torch.masked_select({a}, {a} != 0)",
                        f"torch.nonzero({a})", f"{a}.flatten()[{a}.flatten() < 1]",
                        f"torch.unique({a})")), lambda s: s.exact(a), (a,))


@kind(4)
def rearrange(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dim() >= 1)
    if a is None:
        return None
    n = m.value(a).dim()
    f = [f"torch.flip({a}, [{m.dim(a)}])", f"torch.roll({a}, 1, {m.dim(a)})",
         f"{a}.repeat({', '.join(['2'] + ['1'] * (n - 1))})", f"torch.tile({a}, (2,))",
         f"torch.nn.functional.pad({a}, (1, 0))", f"{a}.repeat_interleave(2, {m.dim(a)})",
         f"torch.nn.functional.pad({a}, (-1, 2), value=2.0)"]
    if n >= 2:
        f += [f"torch.tril({a})", f"torch.triu({a}, 1)", f"torch.rot90({a})",
              f"torch.diag_embed({a}[0])"]
    return m.new(m.one(f), lambda s: s.same(a), (a,))


@kind(1)
def magnitude(m: Maker) -> Statement | None:
    a = m.operand(torch.is_complex)
    if a is None:
        return make_complex(m)

    def rule(s):
        x = s.stat(a)
        if not x.finite:
            raise Rejected("infinite")
        size = parts(s.eval(a)).abs().max().item()
        return lambda out: 2 * x.error + 8 * 2.0**-23 * max(1.0, size)

    return m.new(f"{a}.abs()", rule, (a,))


@kind(1)
def bincount(m: Maker) -> Statement | None:
    a = m.operand(lambda t: t.dtype == torch.int64 and t.dim() == 1 and bool((t >= 0).all()))

    def rule(s):
        if s.stat(a).largest > 20:
            raise Rejected("too many bins")
        return 0.0

    return a and m.new(f"torch.bincount({a})", rule, (a,))


@kind(1)
def one_hot(m: Maker) -> Statement | None:
    a = m.operand(lambda t: integral(t) and t.dim() >= 1)
    return a and m.new(f"torch.nn.functional.one_hot({a}.long().clamp(0, 3), 4)",
                       lambda s: 0.0, (a,))
