"""Whole training and decoding programs: the same losses as on the CPU, in every mode."""

import math

import harness
import pytest
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 4


class Block(nn.Module):
    """A transformer block, with attention by `scaled_dot_product_attention`."""

    def __init__(self, width: int = 16, heads: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x, mask=None, cache=None):
        b, n, width = x.shape
        q, k, v = (
            y.view(b, n, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=self.dropout,
            is_causal=mask is None and cache is None,
        )
        x = x + self.out(y.transpose(1, 2).reshape(b, n, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 20, width: int = 16, context: int = 12) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, start=0, caches=(None, None), mask=None):
        places = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(places)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, mask, cache)
        return self.head(self.norm(x))


class Convnet(nn.Module):
    """Convolutions, BatchNorm, a residual and both kinds of pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4),
                                  nn.ReLU(), nn.MaxPool2d(2))
        self.conv, self.norm = nn.Conv2d(4, 4, 3, 1, 1), nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    def forward(self, x):
        x = self.stem(x)
        return self.head(F.relu(self.norm(self.conv(x)) + x))


class Recurrent(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(9, 6), kind(6, 8, num_layers=2, batch_first=True)
        self.head = nn.Linear(8, 9)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def mlp(norm: bool = True) -> nn.Module:
    layers = [nn.Linear(8, 16), nn.LayerNorm(16) if norm else nn.Identity(), nn.GELU(),
              nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers)


def fit(device, model, inputs, loss, optimizer, steps: int = STEPS, **kwargs) -> list[float]:
    """The loss of each step."""
    model = model.to(device)
    inputs = [x.to(device) for x in inputs]
    opt = optimizer(model.parameters(), **kwargs)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        value = loss(model, *inputs)
        value.backward()
        opt.step()
        losses.append(value.detach())
    # Read at the end: a host read a step would hide what deferring over steps does.
    return [v.item() for v in losses]


def regression(model, x, y):
    return F.mse_loss(model(x), y)


def classes(model, x, y):
    return F.cross_entropy(model(x), y)


def next_token(model, ids):
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


OPTIMIZERS = [
    (torch.optim.AdamW, {"lr": 1e-2, "foreach": False}),
    (torch.optim.AdamW, {"lr": 1e-2, "foreach": True}),
    (torch.optim.AdamW, {"lr": 1e-2, "amsgrad": True}),
    (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1, "foreach": False}),
    (torch.optim.Adam, {"lr": 1e-2, "foreach": True}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "foreach": False}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "foreach": True}),
    (torch.optim.RMSprop, {"lr": 1e-2}),
    (torch.optim.Adagrad, {"lr": 1e-2}),
]


def mlp_with(optimizer, kwargs):
    def program(device):
        return fit(device, mlp(), [torch.rand(6, 8), torch.rand(6, 4)], regression, optimizer,
                   **kwargs)

    return program


def gpt(device):
    return fit(device, GPT(), [torch.randint(20, (3, 9))], next_token, torch.optim.AdamW, lr=1e-2)


def convnet(device):
    model = Convnet()
    losses = fit(device, model, [torch.rand(6, 1, 8, 8), torch.randint(3, (6,))], classes,
                 torch.optim.SGD, lr=0.1, momentum=0.9)
    model.eval()
    x = torch.linspace(0, 1, 64).view(1, 1, 8, 8).to(device)
    # The running statistics count too.
    return losses + model(x).flatten().tolist() + [float(model.norm.num_batches_tracked)]


def lstm(device):
    return fit(device, Recurrent(nn.LSTM), [torch.randint(9, (3, 6))], next_token,
               torch.optim.Adam, lr=1e-2)


def gru(device):
    return fit(device, Recurrent(nn.GRU), [torch.randint(9, (3, 6))], next_token,
               torch.optim.Adam, lr=1e-2)


def embedding(device):
    """An embedding with a padding index, and a bag of words."""

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(7, 5, padding_idx=0)
            self.bag = nn.EmbeddingBag(7, 5, mode="sum")
            self.head = nn.Linear(5, 3)

        def forward(self, ids):
            return self.head(self.words(ids).mean(1) + self.bag(ids))

    return fit(device, Bag(), [torch.randint(7, (4, 6)), torch.randint(3, (4,))], classes,
               torch.optim.SGD, lr=0.5)


def masked_attention(device):
    """Attention with a boolean mask, an additive one, and dropout of nothing."""
    model = nn.Sequential()
    model.add_module("a", Block())
    allowed = torch.rand(3, 1, 7, 7) > 0.4
    allowed |= torch.eye(7, dtype=torch.bool)
    bias = torch.randn(7, 7)

    def loss(model, x, y, allowed, bias):
        return F.mse_loss(model.a(model.a(x, allowed), bias), y)

    return fit(device, model, [torch.randn(3, 7, 16), torch.randn(3, 7, 16), allowed, bias], loss,
               torch.optim.AdamW, lr=1e-2)


def encoder(device):
    """PyTorch's own encoder layer, norm first."""
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    return fit(device, model, [torch.randn(2, 5, 8), torch.randn(2, 5, 8)], regression,
               torch.optim.Adam, lr=1e-2)


def clipped(device):
    """Gradient accumulation, clipping and a schedule."""
    model = mlp().to(device)
    x, y = torch.rand(4, 8).to(device), torch.rand(4, 4).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    seen = []
    for _ in range(STEPS):
        opt.zero_grad()
        for part in range(2):
            regression(model, x[part::2], y[part::2]).div(2).backward()
        seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).item())
        opt.step()
        schedule.step()
    return seen


def decode(device):
    """Greedy decoding with a cache that grows: the tokens."""
    model = GPT().to(device).eval()
    caches = [[], []]
    token = torch.tensor([[3]]).to(device)
    tokens = []
    with torch.inference_mode():
        for i in range(8):
            token = model(token, i, caches)[:, -1].argmax(-1, keepdim=True)
            tokens.append(float(token.item()))
    return tokens


PROGRAMS = {
    **{f"mlp {o.__name__} {' '.join(f'{k}={v}' for k, v in kw.items())}": mlp_with(o, kw)
       for o, kw in OPTIMIZERS},
    **{f.__name__: f for f in (gpt, convnet, lstm, gru, embedding, masked_attention, encoder,
                               clipped, decode)},
}


@pytest.mark.parametrize("how", harness.MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, how):
    program = PROGRAMS[name]
    torch.manual_seed(0)
    want = program("cpu")
    torch.manual_seed(0)
    with harness.mode(how), harness.no_fallback():
        got = program(harness.DEVICE)
    # Float32 sums in another order, over the steps; BatchNorm divides by a small deviation.
    tolerance = 1e-3 if name == "convnet" else 1e-4
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert math.isclose(g, w, rel_tol=tolerance, abs_tol=1e-6), (got, want)


@pytest.mark.parametrize("how", harness.MODES)
def test_autocast(how):
    """bfloat16 where autocast has it, and the loss near that of the CPU under autocast."""

    def program(device):
        torch.manual_seed(0)
        model = mlp().to(device)
        x, y = torch.rand(6, 8).to(device), torch.rand(6, 4).to(device)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(STEPS):
            opt.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                out = model(x)
                assert out.dtype == torch.bfloat16
                loss = F.mse_loss(out.float(), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    want = program("cpu")
    with harness.mode(how), harness.no_fallback():
        got = program(harness.DEVICE)
    # bfloat16 keeps 8 bits: 0.4% a rounding, and which ops round differs between devices.
    assert all(math.isclose(g, w, rel_tol=0.03) for g, w in zip(got, want, strict=True)), (
        got, want)


@pytest.mark.parametrize("how", harness.MODES)
def test_dropout_trains_alike_in_every_mode(how):
    """Random numbers don't depend on the mode."""

    def losses():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 4))
        return fit(harness.DEVICE, model, [torch.rand(6, 8), torch.rand(6, 4)], regression,
                   torch.optim.SGD, lr=0.1)

    with harness.mode("strict"):
        want = losses()
    with harness.mode(how), harness.no_fallback():
        got = losses()
    assert len(set(got)) == STEPS
    assert all(math.isclose(g, w, rel_tol=1e-5) for g, w in zip(got, want, strict=True))
