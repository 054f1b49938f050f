"""Cuts are a function of the op stream: nothing that differs between two runs of a program moves
them.

Each run is a process with its own hash seed, address layout, thread count, load beside it and
random pauses between its ops. `CUT_RUNS=50` asks for more runs than the few made by default.
"""

import os
import random

import pytest

RUNS = int(os.environ.get("CUT_RUNS", "3"))

DISTURB = """
import random, threading, time
import torch
from torch import nn

seed = {seed}
fate = random.Random(seed)
torch.set_num_threads(fate.choice([1, 2, 4]))
ballast = [bytearray(fate.randrange(1, 1 << 20)) for _ in range(fate.randrange(50))]

def load():
    while True:
        sum(range(fate.randrange(1, 20_000)))
        time.sleep(0.001)

for _ in range(fate.randrange(3)):
    threading.Thread(target=load, daemon=True).start()

def pause():
    if fate.random() < 0.2:
        time.sleep(fate.random() * 0.01)

torch.manual_seed(0)
"""

EPILOGUE = """
torch.tpu.synchronize()
stats = torch.tpu.stats()
print(stats["digest"], sum(stats["flushes"].values()))
"""

PROGRAMS = {
    "training": """
net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to("tpu")
for p in net.parameters():
    p.register_post_accumulate_grad_hook(lambda _: pause())
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
x, y = torch.rand(8, 16).to("tpu"), torch.rand(8, 4).to("tpu")
for i in range(40):
    opt.zero_grad()
    h = x
    for layer in net:
        h = layer(h)
        pause()
    loss = nn.functional.mse_loss(h, y)
    loss.backward()
    opt.step()
    if i % 15 == 14:
        loss.item()
""",
    "a loop without reads": """
x = torch.full((8,), 0.5, device="tpu")
state = x
for i in range(3_000):
    state = (state * 0.5 + x).tanh()
    if i % 50 == 0:
        pause()
    if i % 1_000 == 999:
        state = state + torch.randn_like(state)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_cuts_depend_on_the_ops_alone(run_python, name):
    told = set()
    for run in range(RUNS):
        program = DISTURB.replace("{seed}", str(run)) + PROGRAMS[name] + EPILOGUE
        seed = str(random.Random(run).randrange(1, 1 << 32))
        done = run_python(program, TORCHTPU_MODE="defer_and_fuse", PYTHONHASHSEED=seed)
        told.add(done.stdout.splitlines()[-1])
    assert len(told) == 1, told
    assert int(told.pop().split()[1]) >= 3


def test_garbage_in_cycles_moves_no_cut(run_python):
    """When Python's collector frees a cycle depends on what other threads allocate: a tensor in
    one may or may not outlive a region, but the region ends where it would."""
    program = """
class Node:
    pass

x = torch.ones(4, device="tpu")
state = x
for i in range(3_000):
    a, b = Node(), Node()
    a.other, b.other, a.value = b, a, state.sin()
    state = (state * 0.5 + x).tanh()
    if i % 50 == 0:
        pause()
torch.tpu.synchronize()
stats = torch.tpu.stats()
print(stats["ops_recorded"], stats["flushes"])
"""
    told = set()
    for run in range(RUNS):
        text = DISTURB.replace("{seed}", str(run)) + program
        told.add(run_python(text, TORCHTPU_MODE="defer_and_fuse").stdout)
    assert len(told) == 1, told
    assert "repetition" in told.pop()


def test_another_program_has_another_digest(run_python):
    told = set()
    for op in ("sin", "cos"):
        program = f"""
        import torch
        x = torch.ones(4, device="tpu")
        (x.exp() if {op == "sin"} else x.exp().{op}()).{op}().tolist()
        print(torch.tpu.stats()["digest"])
        """
        told.add(run_python(program, TORCHTPU_MODE="defer_and_fuse").stdout)
    assert len(told) == 2
