"""Loops in DeferAndFuse: where they are cut, and that nothing is compiled once they run.

What a loop compiles is counted, not timed. Each program is its own process: anchors that a loop
leaves behind stay for the life of one.
"""

import json

import pytest

PRELUDE = """
import json, sys
import torch
from torch import nn

torch.manual_seed(0)

def model(layers=2, width=16):
    blocks = [m for _ in range(layers)
              for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
    return nn.Sequential(*blocks).to("tpu")

class Training:
    def __init__(self, layers=2, foreach=False):
        self.net = model(layers)
        self.x, self.y = (torch.rand(8, 16).to("tpu") for _ in range(2))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3, foreach=foreach)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, 1000)

    def __call__(self):
        self.opt.zero_grad()
        loss = nn.functional.mse_loss(self.net(self.x), self.y)
        loss.backward()
        self.opt.step()
        self.schedule.step()
        return loss.detach()

compiled = []

def run(iterations, body):
    for i in range(iterations):
        body(i)
        compiled.append(torch.tpu.stats()["regions_compiled"])
    torch.tpu.synchronize()
"""

EPILOGUE = """
stats = torch.tpu.stats()
print(json.dumps({"compiled": compiled, "flushes": dict(stats["flushes"])}))
"""

# Each calls `run`, and gives the iteration from which on nothing is compiled.
LOOPS = {
    "three ops": (
        2_000,
        """
x = torch.full((8,), 0.5, device="tpu")
state = [x]
def body(i):
    state[0] = (state[0] * 0.5 + x).tanh()
run(8_000, body)
""",
    ),
    "training": (40, "training = Training()\nrun(80, lambda i: training())"),
    "training with foreach": (
        60,
        "training = Training(4, foreach=True)\nrun(120, lambda i: training())",
    ),
    "another body every fourth time": (
        80,
        """
training = Training()
def body(i):
    training()
    if i % 4 == 3:
        with torch.no_grad():
            (training.net(training.x) - training.y).abs().mean()
run(120, body)
""",
    ),
    "an if on the step": (
        60,
        """
training = Training()
def body(i):
    loss = training()
    if i > 20 and i % 7 == 0:
        for p in training.net.parameters():
            p.data.mul_(0.999)
run(120, body)
""",
    ),
    "a loop in the loop": (
        8,
        """
training = Training()
x = torch.full((8,), 0.5, device="tpu")
state = [x]
def body(i):
    for _ in range(700):
        state[0] = (state[0] * 0.5 + x).tanh()
    training()
run(24, body)
""",
    ),
    "a read every twentieth time": (
        80,
        """
training = Training()
def body(i):
    loss = training()
    if i % 20 == 19:
        loss.item()
run(160, body)
""",
    ),
    "a long body": (
        5,
        """
xs = [torch.full((4,), 0.5, device="tpu")]
def body(i):
    x = xs[0]
    for k in range(1_666):
        x = (x * 0.5 + xs[0]).tanh() if k % 13 else x.sin() * 2 + x
    xs[0] = x
run(9, body)
""",
    ),
    "noise": (
        60,
        """
x = torch.zeros(8, device="tpu")
state = [x]
def body(i):
    for _ in range(10):
        state[0] = nn.functional.dropout(state[0] + torch.randn_like(x), 0.1) * 0.9
run(200, body)
""",
    ),
    "numbers that change": (
        1_000,
        """
x = torch.full((8,), 0.5, device="tpu")
state = [x]
def body(i):
    state[0] = (state[0] * (1 + 1e-4 * i) + 1e-3 * i).tanh()
run(2_000, body)
""",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_reads_nothing_stops_compiling(run_python, name):
    warm, body = LOOPS[name]
    done = run_python(PRELUDE + body + EPILOGUE, TORCHTPU_MODE="defer_and_fuse")
    told = json.loads(done.stdout.splitlines()[-1])
    compiled, flushes = told["compiled"], told["flushes"]
    assert compiled[warm] == compiled[-1], compiled
    assert compiled[-1] <= 12
    assert flushes["repetition"] >= 3
    assert "pending_ops" not in flushes
