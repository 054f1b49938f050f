"""Reductions, scans, sorts, shapes, indexing and factories for `test_ops`: a row each."""

import itertools

import torch
import torch.nn.functional as F
from op_table import INTS, bf16, boolean, c64, f32, f64, i32, i64, index, inf, nan, rand, row, t, u8

CUBE = rand(2, 3, 4)
HOLES = t(f32, 1.0, nan, -2.0, inf, 0.5, -inf).view(2, 3)

# Reductions.
for name, dims in itertools.product(
    ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "nansum", "nanmean"),
    ((), (0,), (-1, True), ((0, 2),), ((0, 1), True)),
):
    if name == "logsumexp" and not dims:
        continue
    if name in ("var", "std"):
        f = lambda x, n=name, d=dims: getattr(x, n)(  # noqa: E731
            d[0] if d else None, keepdim=len(d) > 1)
    else:
        f = lambda x, n=name, d=dims: getattr(x, n)(*d)  # noqa: E731
    row(f"{name} {dims}", f, CUBE)
    if dims in ((), (0,)):
        row(f"{name} {dims} bf16", f, CUBE.bfloat16())
        row(f"{name} {dims} f64", f, CUBE.double())
for name in ("sum", "prod", "amax", "amin", "any", "all", "argmax", "count_nonzero"):
    row(f"{name} i64", lambda x, n=name: getattr(x, n)(), INTS)
    row(f"{name} u8", lambda x, n=name: getattr(x, n)(), INTS.abs().to(u8))
    row(f"{name} bool", lambda x, n=name: getattr(x, n)() if n != "argmax"
        else x.long().argmax(), rand(3, 4, dtype=boolean))
for name in ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "nansum", "any",
             "all", "prod", "median", "nanmedian"):
    row(f"{name} of nan and inf", lambda x, n=name: getattr(x, n)(), HOLES)
for name in ("max", "min", "median", "nanmedian", "mode", "cummax", "cummin", "kthvalue"):
    args = (2, 1) if name == "kthvalue" else (1,)
    row(f"{name} dim", lambda x, n=name, a=args: tuple(getattr(x, n)(*a)),
        CUBE if name != "mode" else INTS)
    row(f"{name} dim i64", lambda x, n=name, a=args: getattr(x, n)(*a)[0], INTS)
    if name not in ("mode", "kthvalue"):
        row(f"{name} dim nan", lambda x, n=name, a=args: getattr(x, n)(*a)[0], HOLES)
for dim, keep in ((None, False), (0, False), (-1, True)):
    row(f"argmax {dim} {keep}", lambda x, d=dim, k=keep: (x.argmax(d, k), x.argmin(d, k)), CUBE)
    if dim is not None:
        row(f"any all {dim} {keep}", lambda x, d=dim, k=keep: (x.any(d, k), x.all(d, k)),
            rand(3, 4, dtype=boolean))
row("prod dim", lambda x: (x.prod(0), x.prod(-1, keepdim=True), x.prod()), CUBE, ulps=64)
row("sum dtype", lambda x: (x.sum(dtype=torch.float64), x.sum(0, dtype=torch.int64)), INTS)
row("var correction", lambda x: (x.var(1, correction=0), torch.std_mean(x, 0),
                                 torch.var_mean(x)), CUBE)
row("aminmax", lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)), CUBE)
row("count_nonzero", lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 0)), INTS)
for p in (0, 1, 2, 3, inf, -inf):
    row(f"vector_norm {p}", lambda x, p=p: (torch.linalg.vector_norm(x, p),
                                            torch.linalg.vector_norm(x, p, dim=1)), CUBE)
row("norm", lambda x: (x.norm(), x.norm(1, 0), x.norm(2, (0, 1), keepdim=True)), CUBE)
row("sum of nothing", lambda x: (x.sum(), x.sum(0), x.sum(1), x.prod(), x.any(), x.all(),
                                 x.mean(1)), torch.zeros(3, 0))
row("empty elementwise", lambda x: (x + 1, x.T @ x, x @ x.T, torch.cat([x, x]), x.exp()),
    torch.zeros(3, 0))
row("sum out", lambda x: torch.sum(x, 0, out=torch.empty(3, 4, device=x.device, dtype=x.dtype)),
    CUBE)
row("allclose equal", lambda x: (x.new_tensor(float(torch.equal(x, x))), torch.dist(x, x + 1)),
    CUBE)
row("trace", lambda x: (x.trace(), torch.trace(x.double())), INTS)
row("histc bincount", lambda x, n: (torch.histc(x, 4, -2, 2), torch.bincount(n, minlength=6)),
    CUBE, index(5, 7))
row("renorm", lambda x: x.renorm(2, 0, 1.0), CUBE)
row("cdist", lambda x: (torch.cdist(x, x + 1), torch.cdist(x, x + 1, p=1)), CUBE, ulps=64)
row("cosine_similarity", lambda x: F.cosine_similarity(x, x.flip(0), -1), CUBE, ulps=32)
row("pairwise_distance", lambda x: F.pairwise_distance(x, x.flip(0)), CUBE)
row("normalize", lambda x: F.normalize(x, dim=-1), CUBE)

# Scans and sorts.
for name, dtype in itertools.product(("cumsum", "cumprod"), (f32, f64, i64)):
    row(f"{name} {dtype}", lambda x, n=name: (getattr(x, n)(0), getattr(x, n)(-1)),
        rand(3, 4, dtype=dtype))
row("logcumsumexp", lambda x: x.logcumsumexp(1), CUBE, ulps=32)
row("cumsum_ bf16", lambda x: x.clone().cumsum_(0), CUBE.bfloat16())
row("diff", lambda x: (x.diff(), x.diff(n=2, dim=1)), CUBE)
for dtype in (f32, bf16, i64, u8):
    x = rand(3, 6, dtype=dtype)
    row(f"sort {dtype}", lambda x: (x.sort(dim=0, stable=True), x.sort(descending=True)[0],
                                    x.argsort(stable=True)), x)
    row(f"topk {dtype}", lambda x: (x.topk(3)[0], x.topk(2, 0, largest=False)[0]), x)
row("sort nan", lambda x: (*x.sort(stable=True), *x.sort(descending=True, stable=True)), HOLES)
row("topk indices", lambda x: x.topk(2)[1], CUBE)
row("searchsorted", lambda x, y: (torch.searchsorted(x, y), torch.bucketize(y, x, right=True)),
    t(f32, -1, 0, 0.5, 2), CUBE)
row("unique", lambda x: (torch.unique(x), *torch.unique(x, return_inverse=True,
                                                        return_counts=True)), INTS)
row("unique_consecutive", lambda x: torch.unique_consecutive(x), t(i64, 1, 1, 2, 2, 1))

# Shapes. What they give depends on strides alone, so they go on mixed dtypes too.
SHAPES = [
    ("transpose", lambda x: (x.transpose(0, 1), x.mT, x.movedim(0, -1), x.swapaxes(0, 2))),
    ("permute", lambda x: x.permute(2, 0, 1)), ("reshape", lambda x: x.reshape(4, -1)),
    ("slice", lambda x: (x[1:], x[:, ::2], x[..., -1], x[:, 1:, 1:3], x[None], x[-1, :, 2])),
    ("select", lambda x: (x.select(1, 2), x.narrow(2, 1, 2), x.unbind(1)[1])),
    ("expand", lambda x: (x[:, :1].expand(2, 5, 4), x.expand(3, -1, -1, -1))),
    ("split", lambda x: (*x.split(2, 1), *x.chunk(3, 2), *x.tensor_split(2, -1))),
    ("diagonal", lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x[0].diag(), x[0, 0].diag())),
    ("as_strided", lambda x: x.reshape(-1).as_strided((3, 4), (2, 3), 1)),
    ("unfold", lambda x: (x.unfold(2, 2, 1), x.unfold(1, 2, 2))),
    ("squeeze", lambda x: (x[:1].squeeze(), x.unsqueeze(1), x.unsqueeze(-1).squeeze(-1))),
    ("flip", lambda x: (x.flip(0), x.flip(0, 2), x.fliplr(), x.flipud(), x[0].rot90())),
    ("roll", lambda x: (x.roll(1), x.roll((1, -1), (0, 2)))),
    ("repeat", lambda x: (x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(2, 1))),
    ("cat", lambda x: (torch.cat([x, x[:1]]), torch.cat([x, x], -1), torch.cat([x[:0], x]))),
    ("stack", lambda x: (torch.stack([x, x]), torch.stack([x, x], -1), torch.hstack([x, x]),
                         torch.vstack([x, x]), torch.dstack([x, x]))),
    ("tril", lambda x: (x.tril(), x.triu(1), x.tril(-1))),
    ("diag_embed", lambda x: (x.diag_embed(), x[0].diag_embed(1))),
    ("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, -1, 2, 0), value=3))),
    ("meshgrid", lambda x: torch.meshgrid(x[0, 0], x[1, 1, :2], indexing="ij")),
    ("scatter views", lambda x: (x.select_scatter(x[:, 0], 1, 1), x.slice_scatter(x[:1], 0, 1, 2),
                                 x[0].diagonal_scatter(x[0, 0, :3]))),
    ("clone contiguous", lambda x: (x.clone(), x.mT.contiguous(), x.mT.reshape(-1))),
    ("block_diag", lambda x: torch.block_diag(x[0], x[1])),
    ("cartesian_prod", lambda x: torch.cartesian_prod(x[0, 0], x[1, 1])),
    ("kron", lambda x: torch.kron(x[0], x[1])), ("unflatten", lambda x: x.unflatten(2, (2, 2))),
    ("pixel_shuffle", lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2)),
    ("channel_shuffle", lambda x: F.channel_shuffle(x.reshape(1, 4, 2, 3), 2)),
]
for (name, f), dtype in itertools.product(SHAPES, (f32, i64, boolean, c64)):
    if dtype not in (f32, i64) and name in ("kron", "scatter views", "pad", "block_diag"):
        continue
    if dtype in (boolean, c64) and name in ("pixel_shuffle", "channel_shuffle"):
        continue
    row(f"{name} {dtype}", f, rand(2, 3, 4, dtype=dtype))

# Writes through views, as far as one call shows them; programs show the rest.
row("write slice", lambda x: _written(x, lambda y: y[:, 1:].mul_(2)), CUBE)
row("write transposed", lambda x: _written(x, lambda y: y.transpose(0, 2)[1:].add_(1)), CUBE)
row("write diagonal", lambda x: _written(x, lambda y: y[0].diagonal().zero_()), CUBE)
row("write setitem", lambda x: _written(x, lambda y: y.__setitem__((0, slice(1, 3)), 5)), CUBE)
row("write copy_", lambda x: _written(x, lambda y: y[0].copy_(y[1].double())), CUBE)
row("write out", lambda x: _written(x, lambda y: torch.add(y[0], 1, out=y[1])), CUBE)
row("write complex", lambda x: _written(x, lambda y: torch.view_as_real(y)[..., 0].fill_(3)),
    rand(3, 4, dtype=c64))


def _written(x: torch.Tensor, write) -> torch.Tensor:
    y = x.clone()
    write(y)
    return y


# Indexing.
IDX = index(3, 5)
ROWS_2 = t(i64, 2, 0)
for dtype in (f32, bf16, i64, boolean):
    x = rand(3, 4, dtype=dtype)
    row(f"index {dtype}", lambda x, i: (x[i], x[:, i], x[i, i], x[i[:, None], i[None]], x[-i]),
        x, IDX)
    row(f"index_select gather {dtype}", lambda x, i: (
        x.index_select(0, i), x.gather(1, i.expand(3, 5)), x.take(i),
        torch.take_along_dim(x, i[None], 1)), x, IDX)
    row(f"masks {dtype}", lambda x: (x[x > 0] if x.dtype != torch.bool else x[x],
                                     x.nonzero(), torch.argwhere(x)), x)
    row(f"index_put {dtype}", lambda x, i: (
        _written(x, lambda y: y.__setitem__(i, 1)), _written(x, lambda y: y.__setitem__(
            (slice(None), i), y[:, i])), _written(x, lambda y: y.index_fill_(0, i, 1))),
        x, ROWS_2)
    if dtype != boolean:
        row(f"index_add scatter {dtype}", lambda x, i: (
            x.index_add(0, i, x[i] * 2), x.scatter_add(0, i.expand(4, 5).T, x[i]),
            x.index_put((i,), x[i], accumulate=True), x.index_copy(0, i[:1], x[:1])), x, IDX,
            ulps=8)
    row(f"scatter {dtype}", lambda x, i: (
        x.scatter(0, i[:, None].expand(2, 4), x[:2]), x.scatter(1, i.expand(3, 2), 1)),
        x, ROWS_2)
for reduce in ("sum", "prod", "amax", "amin", "mean"):
    row(f"scatter_reduce {reduce}", lambda x, i, r=reduce: (
        x.scatter_reduce(0, i.expand(4, 5).T, x[i], r),
        x.scatter_reduce(0, i.expand(4, 5).T, x[i], r, include_self=False)), rand(3, 4), IDX)
row("mask setitem", lambda x: _written(x, lambda y: y.__setitem__(y > 0, -1)), CUBE)
row("masked_select masked_scatter", lambda x: (
    x.masked_select(x > 0), x.masked_scatter(x > 0, x.flip(0))), CUBE)
row("put", lambda x, i: x.put(i, x.flatten()[:5]), CUBE, t(i64, 0, 5, 7, 9, 1))
row("one_hot", lambda i: F.one_hot(i, 4), IDX)
row("embedding", F.embedding, IDX, rand(3, 4))
row("embedding_bag", lambda i, w: F.embedding_bag(i.view(1, 5), w, mode="mean"), IDX, rand(3, 4))
row("where index", lambda x: torch.where(x > 0), CUBE)
row("tril_indices", lambda x: (torch.tril_indices(3, 4, device=x.device),
                               torch.triu_indices(3, 3, 1, device=x.device)), CUBE)

# Factories.
for dtype in (f32, f64, bf16, i64, i32, u8, boolean, c64):
    row(f"factories {dtype}", lambda x, d=dtype: (
        torch.zeros(2, 3, dtype=d, device=x.device), torch.ones(2, dtype=d, device=x.device),
        torch.full((2,), 1, dtype=d, device=x.device), torch.eye(3, 2, device=x.device).to(d),
        torch.zeros_like(x, dtype=d), torch.ones_like(x, dtype=d),
        torch.full_like(x, 1, dtype=d), x.new_zeros(2, dtype=d), x.new_full((2,), 1, dtype=d)),
        CUBE)
for dtype in (f32, f64, i64, i32):
    row(f"arange {dtype}", lambda x, d=dtype: (
        torch.arange(5, dtype=d, device=x.device), torch.arange(2, 9, 3, dtype=d, device=x.device),
        torch.arange(5, 0, -2, dtype=d, device=x.device)), CUBE)
row("linspace", lambda x: (torch.linspace(-1, 1, 7, device=x.device),
                           torch.logspace(0, 2, 3, device=x.device),
                           torch.arange(0, 1, 0.25, device=x.device)), CUBE, ulps=32)
row("fill", lambda x: (x.clone().fill_(2.5), x.clone().zero_(), x.clone().fill_(x.sum())), CUBE)
row("items", lambda x: (torch.tensor(x.sum().item()), torch.tensor(x.tolist()),
                        torch.tensor(bool(x.sum() > 0))), CUBE.double())
row("f64 to f32", lambda x: (x.float(), x.half(), x.bfloat16(), x.float().double()),
    rand(3, 4, dtype=f64))
