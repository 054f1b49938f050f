"""Gradients of the device's ops in float64 against finite differences.

Inputs are tiny: a full `gradcheck` evaluates an op twice an input element. Most cases take its
fast mode, which compares products with random vectors.
"""

from collections.abc import Callable

import harness
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

CASES: dict[str, tuple[Callable, tuple]] = {}


def case(name: str, fn: Callable, *inputs) -> None:
    assert name not in CASES
    CASES[name] = (fn, inputs)


def rand(*shape: int, low: float = -1.5, high: float = 1.5) -> torch.Tensor:
    """Distinct values, none within 0.02 of another: a maximum stays where it is."""
    n = torch.Size(shape).numel()
    g = torch.Generator().manual_seed(n + len(shape))
    values = torch.linspace(low, high, n + 2, dtype=torch.float64)[1:-1]
    return (values[torch.randperm(n, generator=g)] + 0.013).reshape(shape)


X, Y, POSITIVE = rand(2, 3), rand(2, 3, low=0.4, high=1.9), rand(2, 3, low=0.3, high=2.0)
CUBE = rand(2, 2, 3)
INDEX = torch.tensor([1, 0, 1])

for name in ("exp", "sin", "cos", "tan", "tanh", "sigmoid", "atan", "sinh", "cosh", "erf", "expm1",
             "square", "abs", "neg", "exp2", "asinh", "erfc", "sinc", "cumsum", "logcumsumexp"):
    if "cum" in name:
        case(name, lambda x, n=name: getattr(torch, n)(x, 1), X)
    else:
        case(name, getattr(torch, name), X)
for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma",
             "acosh"):
    case(name, getattr(torch, name), POSITIVE + (1 if name == "acosh" else 0))
for name in ("asin", "acos", "atanh", "erfinv"):
    case(name, getattr(torch, name), rand(2, 3, low=-0.8, high=0.8))

for name in ("relu", "gelu", "silu", "mish", "elu", "selu", "celu", "softplus", "hardswish",
             "hardsigmoid", "hardtanh", "leaky_relu", "logsigmoid", "softsign", "tanhshrink",
             "hardshrink", "softshrink", "relu6"):
    case(name, getattr(F, name), X)
case("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), X)
case("glu", F.glu, rand(2, 4))
case("prelu", F.prelu, X.reshape(1, 2, 3), rand(2))
case("threshold", lambda x: F.threshold(x, 0.3, 0.0), X)

for name in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "hypot", "pow",
             "logaddexp", "fmax", "copysign"):
    case(name, getattr(torch, name), POSITIVE, rand(3, low=0.45, high=1.7))
case("pow scalar", lambda x: x**3, X)
case("pow base", lambda x: 2**x, X)
case("xlogy", torch.xlogy, X, POSITIVE)
case("remainder", lambda x: torch.remainder(x, 0.7), POSITIVE)
case("lerp", torch.lerp, X, Y, POSITIVE)
case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), X, Y, POSITIVE)
case("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), X, Y, POSITIVE)
case("where", lambda a, b: torch.where(a > 0, a, b), X, Y)
case("clamp", lambda x: x.clamp(-0.8, 0.9), X)
case("masked_fill", lambda x: x.masked_fill(x > 0.2, 3.0), X)

for name in ("sum", "mean", "prod", "amax", "amin", "max", "var", "std", "norm", "nansum"):
    case(name, lambda x, n=name: getattr(x, n)(), X)
for name in ("sum", "mean", "prod", "amax", "logsumexp", "var", "std"):
    case(f"{name} dim", lambda x, n=name: getattr(x, n)(1), CUBE)
for name in ("max", "min", "median", "cummax", "cummin"):
    case(f"{name} dim", lambda x, n=name: getattr(x, n)(1)[0], CUBE)
case("vector_norm 3", lambda x: torch.linalg.vector_norm(x, 3, dim=1), X)
case("cumprod", lambda x: x.cumprod(1), POSITIVE)
case("sort", lambda x: x.sort(1)[0], X)
case("topk", lambda x: x.topk(2)[0], X)
case("kthvalue", lambda x: x.kthvalue(2)[0], X)

case("mm", torch.mm, X, rand(3, 2))
case("bmm", torch.bmm, CUBE, rand(2, 3, 2))
case("mv", torch.mv, X, rand(3))
case("dot", torch.dot, rand(3), rand(3, low=0.2))
case("matmul broadcast", torch.matmul, CUBE, rand(3, 2))
case("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), rand(2), X, rand(3, 2))
case("baddbmm", torch.baddbmm, rand(2, 2, 2), CUBE, rand(2, 3, 2))
case("linear", F.linear, X, rand(2, 3), rand(2))
case("bilinear", F.bilinear, X, Y, rand(2, 3, 3))
case("outer", torch.outer, rand(2), rand(3))
case("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), CUBE, rand(2, 2, 3, low=0.1))
case("cross", torch.linalg.cross, X, Y)
case("cdist", torch.cdist, X, Y + 2)

case("transpose", lambda x: x.transpose(0, 1) * Y.T.to(x.device), X)
case("permute", lambda x: x.permute(2, 0, 1).exp(), CUBE)
case("slice", lambda x: x[:, 1:] * x[:, :-1], X)
case("select", lambda x: x.select(1, 2).exp(), X)
case("expand", lambda x: x[:, :1].expand(2, 3).exp(), X)
case("as_strided", lambda x: x.as_strided((2, 2), (1, 2)).exp(), X)
case("diagonal", lambda x: x.diagonal().exp(), X)
case("unfold", lambda x: x.unfold(1, 2, 1).exp(), X)
case("cat", lambda a, b: torch.cat([a, b.exp()], 1), X, Y)
case("stack", lambda a, b: torch.stack([a, b.exp()], 1), X, Y)
case("split", lambda x: x.split(2, 1)[0].exp(), X)
case("flip roll", lambda x: x.flip(1) * x.roll(1, 0), X)
case("repeat", lambda x: x.repeat(2, 1).exp(), X)
case("tril", lambda x: x.tril().exp(), X)
case("pad", lambda x: F.pad(x, (1, 1), value=0.5).exp(), X)
case("pad reflect", lambda x: F.pad(x, (1, 1), mode="reflect").exp(), X)
case("diag_embed", lambda x: x.diag_embed().exp(), X)
case("write", lambda x: _written(x), X)

case("index_select", lambda x: x.index_select(0, INDEX.to(x.device)).exp(), X)
case("index", lambda x: x[INDEX.to(x.device), INDEX.to(x.device)].exp(), X)
case("mask", lambda x: x[x > 0].exp(), X)
case("gather", lambda x: x.gather(1, INDEX[None].to(x.device)).exp(), X)
case("scatter", lambda x, y: x.scatter(0, INDEX[None].to(x.device), y[:1]), X, Y)
case("scatter_add", lambda x, y: x.scatter_add(0, INDEX[None].to(x.device), y[:1]), X, Y)
case("index_put", lambda x, y: x.index_put((INDEX.to(x.device),), y, accumulate=True), X,
     rand(3, 3))
case("index_add", lambda x, y: x.index_add(0, INDEX.to(x.device), y), X, rand(3, 3))
case("take", lambda x: x.take(INDEX.to(x.device)).exp(), X)
case("embedding", lambda w: F.embedding(INDEX.to(w.device), w).exp(), X)

IMAGE = rand(1, 2, 4, 4)
case("conv1d", F.conv1d, rand(1, 2, 5), rand(3, 2, 3), rand(3))
case("conv2d", lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), IMAGE, rand(2, 2, 3, 3),
     rand(2))
case("conv2d groups", lambda x, w: F.conv2d(x, w, groups=2, dilation=2), IMAGE, rand(2, 1, 2, 2))
case("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), rand(1, 2, 2, 2),
     rand(2, 1, 2, 2))
case("max_pool1d", lambda x: F.max_pool1d(x, 2), rand(1, 2, 4))
case("max_pool2d", lambda x: F.max_pool2d(x, 2), IMAGE)
case("max_pool2d overlapping", lambda x: F.max_pool2d(x, 3, 1, 1), IMAGE)
case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), IMAGE)
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE)
case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 2), IMAGE)
case("interpolate nearest", lambda x: F.interpolate(x, scale_factor=2), rand(1, 1, 2, 3))
case("interpolate bilinear", lambda x: F.interpolate(x, (3, 4), mode="bilinear"),
     rand(1, 1, 2, 3))

case("layer_norm", lambda x, w, b: F.layer_norm(x, (3,), w, b), X, rand(3), rand(3))
case("rms_norm", lambda x, w: F.rms_norm(x, (3,), w), X, rand(3))
case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), rand(2, 4, 2), rand(4), rand(4))
case("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), rand(3, 2),
     rand(2), rand(2))
case("batch_norm eval", lambda x, w: F.batch_norm(
    x, w.detach() * 0, w.detach() * 0 + 2, w, w), rand(3, 2), rand(2))
case("instance_norm", F.instance_norm, rand(1, 2, 2, 2))
case("softmax", lambda x: x.softmax(-1), X)
case("log_softmax", lambda x: x.log_softmax(0), X)

case("mse_loss", F.mse_loss, X, Y)
case("l1_loss", F.l1_loss, X, Y)
case("smooth_l1_loss", F.smooth_l1_loss, X, Y)
case("huber_loss", lambda a, b: F.huber_loss(a, b, delta=0.4), X, Y)
case("bce", lambda x: F.binary_cross_entropy(x.sigmoid(), torch.full_like(x, 0.3)), X)
case("bce_with_logits", lambda x: F.binary_cross_entropy_with_logits(
    x, torch.full_like(x, 0.3)), X)
case("cross_entropy", lambda x: F.cross_entropy(x, INDEX[:2].to(x.device)), X)
case("cross_entropy smooth", lambda x: F.cross_entropy(
    x, INDEX[:2].to(x.device), label_smoothing=0.2, reduction="sum"), X)
case("cross_entropy ignore", lambda x: F.cross_entropy(x, INDEX[:2].to(x.device), ignore_index=1),
     X)
case("nll_loss", lambda x: F.nll_loss(x, INDEX[:2].to(x.device)), X)
case("kl_div", lambda x: F.kl_div(x.log_softmax(1), torch.full_like(x, 0.3),
                                  reduction="batchmean"), X)

QKV = rand(1, 2, 3, 2), rand(1, 2, 3, 2, low=-1), rand(1, 2, 3, 2, high=1)
case("sdpa", F.scaled_dot_product_attention, *QKV)
case("sdpa causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *QKV)
case("sdpa mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), *QKV, rand(3, 3))

GATES = rand(2, 2), rand(2, 2, high=1), rand(2, 2, low=-1)
case("lstm cell", lambda x, h, c, w, u, b: torch.lstm_cell(x, (h, c), w, u, b, b), *GATES,
     rand(8, 2), rand(8, 2, high=1), rand(8))
case("gru cell", lambda x, h, w, u, b: torch.gru_cell(x, h, w, u, b, b), *GATES[:2], rand(6, 2),
     rand(6, 2, high=1), rand(6))
case("rnn cell", lambda x, h, w, u: torch.rnn_tanh_cell(x, h, w, u), *GATES[:2], rand(2, 2),
     rand(2, 2, high=1))
case("view_as_complex", lambda x: torch.view_as_complex(x).abs(), rand(2, 3, 2)[..., :2])


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:] *= x[:, :-1]
    y[0].exp_()
    return y


def check(name: str, how: str, **kwargs) -> None:
    fn, inputs = CASES[name]
    with harness.mode(how), harness.no_fallback():
        # The same backward may be fused differently the second time: a few ulps.
        assert gradcheck(
            fn, [x.to(harness.DEVICE).requires_grad_() for x in inputs], nondet_tol=1e-13, **kwargs)


@pytest.mark.parametrize("name", CASES)
def test_gradcheck(name):
    """The backward formula agrees with central differences along random directions.

    In one mode: an op's backward is recorded as any op is, and modes are compared elsewhere.
    """
    check(name, "defer_and_fuse", fast_mode=True)


@pytest.mark.parametrize("how", harness.TWO_MODES)
@pytest.mark.parametrize("name", ["tanh", "mm", "index_put", "layer_norm", "write"])
def test_gradcheck_element_by_element(name, how):
    """The whole Jacobian: a write and a read of the host for each element."""
    check(name, how)


def test_there_are_enough():
    assert len(CASES) >= 60


def test_a_wrong_gradient_is_found():
    """The test of the test."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2.01

    x = X.to(harness.DEVICE).requires_grad_()
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Wrong.apply, [x])
