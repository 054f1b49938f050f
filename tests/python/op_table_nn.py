"""Matrix products, layers, losses and attention for `test_ops`: a row each."""

import itertools

import torch
import torch.nn.functional as F
from op_table import bf16, boolean, c64, f16, f32, f64, i32, index, rand, row, t

# Products.
for dtype in (f32, f64, bf16, f16, c64):
    a, b, v = rand(3, 4, dtype=dtype), rand(4, 5, dtype=dtype), rand(4, dtype=dtype)
    ulps = 2 if dtype in (bf16, f16) else 32
    row(f"mm {dtype}", lambda a, b: (a @ b, torch.mm(a, b), b.mT @ a.mT), a, b, ulps=ulps)
    row(f"mv dot {dtype}", lambda a, v: (a @ v, v @ v, torch.dot(v, v), torch.outer(v, v)), a, v,
        ulps=ulps)
    row(f"bmm {dtype}", lambda a: (torch.bmm(a, a.mT), a @ a[0].mT, a[:, None] @ a.mT),
        rand(2, 3, 4, dtype=dtype), ulps=ulps)
    row(f"addmm {dtype}", lambda c, a, b: (
        torch.addmm(c, a, b), torch.addmm(c[0], a, b, beta=0.5, alpha=2),
        torch.addmm(c, a, b, beta=0)), rand(3, 5, dtype=dtype), a, b, ulps=2 * ulps)
    if dtype != c64:
        row(f"linear {dtype}", lambda x, w, b: (F.linear(x, w, b), F.linear(x[0], w),
                                                F.linear(x[None], w, b)),
            a, rand(6, 4, dtype=dtype), rand(6, dtype=dtype), ulps=2 * ulps)
row("mm i64", lambda a: (a @ a, torch.mm(a, a)), rand(3, 3, dtype=torch.int64))
row("mm i32", lambda a: a @ a, rand(3, 3, dtype=i32))
row("baddbmm", lambda c, a: (torch.baddbmm(c, a, a.mT, beta=2), torch.addbmm(c[0], a, a.mT)),
    rand(2, 3, 3), rand(2, 3, 4))
row("addmv addr", lambda m, v, w: (torch.addmv(w, m, v), torch.addr(m, w, v)),
    rand(3, 4), rand(4), rand(3))
row("einsum", lambda a, b: (torch.einsum("bij,bkj->bik", a, b), torch.einsum("bij->ji", a),
                            torch.einsum("bij,bij->b", a, b)), rand(2, 3, 4), rand(2, 3, 4))
row("tensordot", lambda a: torch.tensordot(a, a, dims=([1, 2], [1, 2])), rand(2, 3, 4))
row("bilinear", lambda x, w: F.bilinear(x, x, w), rand(3, 4), rand(2, 4, 4), ulps=32)
row("cross", lambda a: torch.linalg.cross(a, a.flip(0)), rand(4, 3))
row("multi_dot", lambda a: torch.linalg.multi_dot([a, a.mT, a]), rand(3, 4), ulps=64)
row("matrix_power", lambda a: torch.linalg.matrix_power(a, 3), rand(3, 3), ulps=64)
row("vander", lambda a: torch.linalg.vander(a, N=3), rand(4))
row("mm out", lambda a: torch.mm(a, a.mT, out=a.new_empty(3, 3)), rand(3, 4))
row("matmul of nothing", lambda a: (a.mT @ a, a @ a.mT), torch.zeros(0, 3))

# Convolutions.
IMAGE, KERNEL, BIAS = rand(2, 4, 7, 6), rand(6, 4, 3, 3), rand(6)
CONVS = [{}, {"padding": 1}, {"stride": 2}, {"dilation": 2}, {"padding": "same"},
         {"stride": (2, 1), "padding": (1, 0)}]
for kwargs in CONVS:
    row(f"conv2d {kwargs}", lambda x, w, b, k=kwargs: F.conv2d(x, w, b, **k), IMAGE, KERNEL, BIAS,
        ulps=64)
row("conv2d groups", lambda x, w: (F.conv2d(x, w[:, :2], groups=2),
                                   F.conv2d(x, w[:4, :1], groups=4)), IMAGE, KERNEL, ulps=64)
row("conv2d unbatched", lambda x, w: F.conv2d(x[0], w), IMAGE, KERNEL, ulps=64)
row("conv2d bf16", F.conv2d, IMAGE.bfloat16(), KERNEL.bfloat16())
row("conv1d", lambda x, w, b: (F.conv1d(x, w, b), F.conv1d(x, w, stride=2, padding=2)),
    rand(2, 3, 8), rand(5, 3, 3), rand(5), ulps=32)
row("conv3d", lambda x, w: F.conv3d(x, w, padding=1), rand(1, 2, 4, 4, 3), rand(3, 2, 2, 3, 2),
    ulps=64)
row("conv_transpose2d", lambda x, w: (F.conv_transpose2d(x, w), F.conv_transpose2d(
    x, w, stride=2, padding=1, output_padding=1)), rand(2, 4, 4, 5), rand(4, 3, 3, 3), ulps=64)
row("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), rand(2, 4, 5),
    rand(4, 3, 3), ulps=32)
row("unfold fold", lambda x: (F.unfold(x, 2, stride=2), F.fold(F.unfold(x, 2), (6, 6), 2)),
    rand(1, 2, 6, 6))

# Pools and resizing.
PLANES = rand(2, 3, 8, 6)
POOLS = [
    ("max_pool2d", lambda x: F.max_pool2d(x, 2)),
    ("max_pool2d padded", lambda x: F.max_pool2d(x, 3, 2, 1)),
    ("max_pool2d dilated", lambda x: F.max_pool2d(x, 2, 1, 0, 2)),
    ("max_pool2d ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    ("max_pool2d indices", lambda x: F.max_pool2d(x, 2, return_indices=True)),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 2)),
    ("avg_pool2d padded", lambda x: (F.avg_pool2d(x, 3, 2, 1),
                                     F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))),
    ("adaptive_avg_pool2d", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 2),
                                       F.adaptive_avg_pool2d(x, (3, 4)))),
    ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 4))),
    ("pools 1d", lambda x: (F.max_pool1d(x[0], 2), F.avg_pool1d(x[0], 3, 2),
                            F.adaptive_avg_pool1d(x[0], 2))),
    ("pools 3d", lambda x: (F.max_pool3d(x, 2), F.avg_pool3d(x, 2),
                            F.adaptive_avg_pool3d(x, (1, 2, 3)))),
    ("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2)),
    ("nearest", lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 7)),
                           F.interpolate(x, (5, 7), mode="nearest-exact"))),
    ("bilinear resize", lambda x: (F.interpolate(x, (5, 9), mode="bilinear"), F.interpolate(
        x, scale_factor=2, mode="bilinear", align_corners=True))),
    ("bicubic", lambda x: F.interpolate(x, (5, 9), mode="bicubic")),
    ("pads", lambda x: (F.pad(x, (1, 2, 2, 1), mode="reflect"),
                        F.pad(x, (1, 2, 2, 1), mode="replicate"),
                        F.pad(x, (1, 2, 2, 1), mode="circular"))),
    ("grid_sample", lambda x: F.grid_sample(x, F.affine_grid(
        torch.eye(2, 3, device=x.device, dtype=x.dtype).expand(2, 2, 3) * 0.7, [2, 3, 4, 4],
        align_corners=False), align_corners=False)),
]
for name, f in POOLS:
    row(name, f, PLANES, ulps=64)
for (name, f) in POOLS[:6]:
    row(f"{name} bf16", f, PLANES.bfloat16())

# Norms and softmaxes.
for dtype in (f32, f64, bf16):
    x, w, b = rand(2, 4, 6, dtype=dtype), rand(6, dtype=dtype), rand(6, dtype=dtype)
    ulps = 4 if dtype == bf16 else 64
    row(f"layer_norm {dtype}", lambda x, w, b: (F.layer_norm(x, (6,), w, b),
                                                F.layer_norm(x, (4, 6))), x, w, b, ulps=ulps)
    row(f"rms_norm {dtype}", lambda x, w: F.rms_norm(x, (6,), w), x, w, ulps=ulps)
    row(f"group_norm {dtype}", lambda x, w: F.group_norm(x, 2, w[:4], w[:4]), x, w, ulps=ulps)
    row(f"softmax {dtype}", lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(1)), x,
        ulps=ulps)
    row(f"batch_norm {dtype}", lambda x, m: (
        F.batch_norm(x, m, m.abs() + 1), F.batch_norm(x, m, m.abs() + 1, m, m),
        F.batch_norm(x, m.clone(), m.abs() + 1, training=True)), x, w[:4], ulps=2 * ulps)
row("batch_norm running", lambda x: _running(x), rand(3, 4, 5), ulps=32)
row("instance_norm", F.instance_norm, rand(2, 3, 5, 4), ulps=64)
row("local_response_norm", lambda x: F.local_response_norm(x, 2), rand(2, 4, 5))
row("softmax of -inf", lambda x, m: (x.masked_fill(m, float("-inf")).softmax(-1),
                                     x.masked_fill(m, float("-inf")).log_softmax(0)),
    rand(3, 4), rand(3, 4, dtype=boolean))
row("softmax dtype", lambda x: x.softmax(-1, dtype=torch.float32), rand(3, 4, dtype=bf16))
row("softmin gumbel-free", lambda x: (F.softmin(x, 1), F.log_softmax(x * 100, 1)), rand(3, 4),
    ulps=64)
row("glu", lambda x: F.glu(x, -1), rand(3, 4))
row("prelu", F.prelu, rand(2, 3, 4), rand(3))
row("dropout of nothing", lambda x: (F.dropout(x, 0.5, training=False), F.dropout(x, 0.0),
                                     F.dropout(x, 1.0)), rand(3, 4))


def _running(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean, var = x.new_zeros(4), x.new_ones(4)
    return F.batch_norm(x, mean, var, training=True, momentum=0.3), mean, var


# Losses.
A, B, PROB = rand(4, 5), rand(4, 5).flip(0), rand(4, 5, low=0.05, high=0.95)
CLASSES = index(5, 4)
for reduction in ("mean", "sum", "none"):
    for name, f in [
        ("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss), ("smooth_l1_loss", F.smooth_l1_loss),
        ("huber_loss", F.huber_loss), ("bce_with_logits", lambda a, b, reduction:
            F.binary_cross_entropy_with_logits(a, b.sigmoid(), reduction=reduction)),
        ("soft_margin", lambda a, b, reduction: F.soft_margin_loss(a, b.sign(),
                                                                   reduction=reduction)),
        ("gaussian_nll", lambda a, b, reduction: F.gaussian_nll_loss(a, b, b.exp(),
                                                                     reduction=reduction)),
        ("hinge_embedding", lambda a, b, reduction: F.hinge_embedding_loss(
            a, b.sign(), reduction=reduction)),
    ]:
        row(f"{name} {reduction}", lambda a, b, f=f, r=reduction: f(a, b, reduction=r), A, B,
            ulps=32)
    row(f"bce {reduction}", lambda p, q, r=reduction: F.binary_cross_entropy(p, q, reduction=r),
        PROB, PROB.flip(0), ulps=32)
    row(f"kl_div {reduction}", lambda p, q, r=reduction: F.kl_div(p.log(), q, reduction=r),
        PROB, PROB.flip(0), ulps=64)
    row(f"cross_entropy {reduction}", lambda x, c, r=reduction: (
        F.cross_entropy(x, c, reduction=r), F.cross_entropy(x, c, label_smoothing=0.1, reduction=r),
        F.cross_entropy(x, c, ignore_index=2, reduction=r),
        F.nll_loss(x.log_softmax(1), c, reduction=r)), A, CLASSES, ulps=32)
row("cross_entropy probabilities", lambda x, p: F.cross_entropy(x, p), A, PROB, ulps=32)
row("cross_entropy weight", lambda x, c, w: F.cross_entropy(x, c, w), A, CLASSES,
    rand(5, low=0.1), ulps=32)
row("cross_entropy 2d", lambda x, c: F.cross_entropy(x, c), rand(2, 5, 3, 4), index(5, 2, 3, 4),
    ulps=32)
row("triplet margin", lambda a, b: F.triplet_margin_loss(a, b, a.flip(1)), A, B, ulps=32)
row("multi margin", lambda a, c: F.multi_margin_loss(a, c), A, CLASSES, ulps=32)
row("cosine_embedding", lambda a, b: F.cosine_embedding_loss(a, b, b[:, 0].sign()), A, B, ulps=64)
row("margin_ranking", lambda a, b: F.margin_ranking_loss(a, b, b.sign()), A, B)
row("poisson_nll", lambda a, b: F.poisson_nll_loss(a, b.abs()), A, B, ulps=32)

# Attention.
Q, K, V = rand(2, 2, 5, 4), rand(2, 2, 6, 4), rand(2, 2, 6, 4)
for dtype, causal in itertools.product((f32, f64, bf16), (False, True)):
    row(f"sdpa {dtype} causal={causal}", lambda q, k, v, c=causal:
        F.scaled_dot_product_attention(q, k, v, is_causal=c),
        Q.to(dtype), K.to(dtype), V.to(dtype), ulps=8 if dtype == bf16 else 64)
row("sdpa mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), Q, K, V,
    rand(5, 6, dtype=boolean) | torch.eye(5, 6, dtype=boolean), ulps=64)
row("sdpa bias", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3), Q, K,
    V, rand(5, 6), ulps=64)
row("sdpa gqa", lambda q, k, v: F.scaled_dot_product_attention(
    q, k[:, :1], v[:, :1], enable_gqa=True), Q, K, V, ulps=64)

# Recurrent cells.
GATES = rand(3, 4), rand(3, 5), rand(3, 5).flip(0)
row("lstm cell", lambda x, h, c, w, u: torch.lstm_cell(x, (h, c), w, u), *GATES, rand(20, 4),
    rand(20, 5), ulps=64)
row("gru cell", lambda x, h, w, u, b: torch.gru_cell(x, h, w, u, b, b), *GATES[:2],
    rand(15, 4), rand(15, 5), rand(15), ulps=64)
row("rnn cell", lambda x, h, w, u: torch.rnn_tanh_cell(x, h, w, u), *GATES[:2],
    rand(5, 4), rand(5, 5), ulps=64)

# Fused steps that the foreach optimisers call.
LISTS = (rand(3, 4), rand(4), t(f32, 1.0, 2.0))
row("foreach", lambda a, b, c: (
    torch._foreach_add([a, b, c], [a, b, c], alpha=0.5), torch._foreach_mul([a, b, c], 0.5),
    torch._foreach_sqrt([a.abs(), b.abs(), c]), torch._foreach_div([a, b], [a + 9, b + 9]),
    torch._foreach_addcdiv([a, b], [a, b], [a + 9, b + 9], -0.1),
    torch._foreach_lerp([a, b], [a + 1, b + 1], 0.1), torch._foreach_norm([a, b, c]),
    torch._foreach_maximum([a, b], 0.5)), *LISTS)
