"""Trains two models on device `tpu`, and shows what deferring and fusing did.

    python examples/train.py [--steps 120] [--epochs 6] [--out out]

A GPT of a few million parameters learns English from the reference text that ships with
Python (`pydoc_data.topics`), and a residual convnet learns scikit-learn's digits. Both are
plain PyTorch: nothing below knows about the engine but the lines that print its counters.
The mode is `TORCHTPU_MODE` (default here: defer_and_fuse); the same run is then repeated in
strict mode, in a process of its own, to compare times.
"""

import argparse
import json
import math
import os
import pathlib
import pydoc_data.topics
import subprocess
import sys
import time

os.environ.setdefault("TORCHTPU_MODE", "defer_and_fuse")

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

CONTEXT, BATCH, WIDTH, HEADS, LAYERS = 96, 8, 224, 7, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2)
            for z in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)

    def forward(self, index):
        places = torch.arange(index.shape[1], device=index.device)
        return self.head(self.norm(self.blocks(self.token(index) + self.position(places))))


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class Monitor:
    """Collects the curve of a run and prints its progress line."""

    def __init__(self, name, total, quiet):
        self.name, self.total, self.quiet = name, total, quiet
        self.losses, self.memory, self.times = [], [], []
        self.start = time.perf_counter()

    def step(self, loss):
        # The one host read of a step: this is where a deferred step is flushed.
        self.losses.append(loss.item())
        self.memory.append(torch.tpu.memory_allocated() / 2**20)
        self.times.append(time.perf_counter() - self.start)
        if not self.quiet:
            done = len(self.losses)
            stats = torch.tpu.stats()
            print(
                f"\r{self.name} {done:4}/{self.total}  loss {self.losses[-1]:.4f}"
                f"  ops {stats['ops_recorded']:8}  regions {stats['regions_compiled']:4}"
                f"  hits {stats['cache_hits']:5}"
                f"  peak {torch.tpu.max_memory_allocated() / 2**20:6.1f} MiB",
                end="\n" if done == self.total else "",
                flush=True,
            )


def train_gpt(device, steps, quiet):
    text = "\n".join(pydoc_data.topics.topics.values())
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    data = torch.tensor([number[c] for c in text])
    torch.manual_seed(0)
    model = GPT(len(letters)).to(device)
    if not quiet:
        size = sum(p.numel() for p in model.parameters())
        print(f"GPT: {size / 1e6:.2f} million parameters, {len(data)} characters of text")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda i: min(1, (i + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * i / steps))
    )
    monitor = Monitor("gpt    ", steps, quiet)
    for _ in range(steps):
        at = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
        window = torch.stack([data[i : i + CONTEXT + 1] for i in at]).to(device)
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        monitor.step(loss)
    return monitor


def train_convnet(device, epochs, quiet):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    held_out = 256
    torch.manual_seed(0)
    model = nn.Sequential(
        Residual(1, 16, 1), Residual(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    ).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = torch.utils.data.TensorDataset(images[held_out:], labels[held_out:])
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)
    monitor = Monitor("convnet", epochs * len(loader), quiet)
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            monitor.step(loss)
    model.eval()
    with torch.no_grad():
        guess = model(images[:held_out].to(device)).argmax(1).cpu()
    accuracy = (guess == labels[:held_out]).float().mean().item()
    if not quiet:
        print(f"convnet: {accuracy:.1%} of {held_out} held-out digits right")
    return monitor


def picture(path, runs):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(runs), figsize=(11, 6.5), squeeze=False)
    for column, (title, run) in zip(axes.T, runs.items(), strict=True):
        column[0].plot(run.losses, color="#2b6cb0", linewidth=1.2)
        column[0].set(title=title, ylabel="loss", xlabel="step")
        column[1].plot(run.times, run.memory, color="#c05621", linewidth=1.2)
        column[1].set(ylabel="device memory in live buffers (MiB)", xlabel="seconds")
        column[1].set_ylim(bottom=0)
        for axis in column:
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120, help="training steps of the GPT")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of the convnet")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--no-strict", action="store_true", help="don't repeat in strict mode")
    parser.add_argument("--report", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    mode = os.environ["TORCHTPU_MODE"]
    if not args.report:
        device = torch.tpu.get_device_properties()
        print(f"mode {mode}, PJRT platform {device.platform}, plugin {device.plugin}")
    runs = {
        "GPT": train_gpt("tpu", args.steps, args.report),
        "convnet on digits": train_convnet("tpu", args.epochs, args.report),
    }
    summary = {
        name: (run.times[-1], run.times[-1] - run.times[1], run.losses[-1])
        for name, run in runs.items()
    }
    if args.report:
        print(json.dumps(summary))
        return
    stats, fallbacks = torch.tpu.stats(), torch.tpu.fallbacks()
    print(
        f"{stats['ops_recorded']} ops recorded, {stats['regions_compiled']} regions compiled in "
        f"{stats['compile_seconds']:.1f} s, {stats['cache_hits']} cache hits, "
        f"{len(fallbacks)} ops on the CPU, peak memory "
        f"{torch.tpu.max_memory_allocated() / 2**20:.1f} MiB"
    )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "train.svg"
    picture(path, runs)
    print(f"loss and memory: {path}")
    if args.no_strict:
        return
    print("the same in strict mode …", flush=True)
    lengths = ["--steps", str(args.steps), "--epochs", str(args.epochs)]
    again = subprocess.run(
        [sys.executable, __file__, "--report", *lengths],
        env={**os.environ, "TORCHTPU_MODE": "strict"},
        stdout=subprocess.PIPE, check=True, text=True,
    )
    print(f"{'':18} {mode:>16} {'strict':>10}   (seconds; without the first two steps in brackets)")
    for name, (total, steady, loss) in json.loads(again.stdout.splitlines()[-1]).items():
        ours = summary[name]
        print(
            f"{name:18} {ours[0]:7.1f} ({ours[1]:6.1f}) {total:7.1f} ({steady:6.1f})"
            f"   {steady / ours[1]:.2f}x in the steady state; losses {ours[2]:.4f} and {loss:.4f}"
        )


if __name__ == "__main__":
    main()
