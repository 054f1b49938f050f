"""Random programs, and what they must give: the same on the CPU and in each mode of the device.

A program is Python text against ``torch`` and a ``device``. It is made a statement at a time
(`random_statements` and its neighbours), each run on the CPU at once: what raises there, or
would not have one right answer (see `program_state`), is dropped. The text then runs on the
device, in Strict and in DeferAndFuse, and all live variables are compared: dtype, shape, and
values as closely as the program's own error analysis allows, mostly exactly.

    python tests/python/random_programs.py --count 2000      # 2,000 programs, all failures
    python tests/python/random_programs.py --seed 17 --show  # one, and its text
    RANDOM_PROGRAMS=2000 python -m pytest tests/python/test_random_programs.py

Programs are a function of their seed alone. A failing one is cut down to the statements it
takes to fail and printed as a snippet that runs by itself.
"""

import argparse
import random
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field

import random_reductions  # noqa: F401 registers its kinds
import random_statements
import random_writes  # noqa: F401 registers its kinds
import torch
from harness import DEVICE, mode
from program_state import PRELUDE, State, Statement, parts

MODES = ("strict", "defer_and_fuse")


@dataclass
class Failure:
    """How a program failed in a mode."""

    mode: str
    kind: str
    message: str
    program: list[Statement] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.mode}: {self.message}\n\n{snippet(self)}"


def replay(statements: Iterable[Statement]) -> State:
    """Runs a program on the CPU. Raises Rejected, or what a statement raises."""
    state = State()
    for s in statements:
        state.run(s)
    return state


def text(statements: Iterable[Statement]) -> str:
    return "".join(s.source + "\n" for s in statements)


def differs(got, want, tolerance: float) -> str | None:
    """How `got` differs from the CPU's `want`, or None."""
    if not isinstance(want, torch.Tensor):
        if type(got) is not type(want):
            return f"is a {type(got).__name__}, not {type(want).__name__}"
        got, want = torch.tensor(got), torch.tensor(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    g, w = parts(got.cpu()), parts(want)
    # The float64 arithmetic of the analysis itself, and values that torch.tensor rounded.
    close = (g - w).abs() <= tolerance * 1.001
    close |= (g == w) | (g.isnan() & w.isnan())
    if close.all():
        return None
    return f"is\n{got.cpu()}\nnot\n{want}\nwithin {tolerance:.3g}"


def run_on_device(source: str, how: str) -> dict:
    """The program's namespace after it ran on the device. What it raises is a RuntimeError."""
    ns: dict = {"torch": torch, "device": DEVICE}
    exec(PRELUDE, ns)
    with mode(how), torch.no_grad():
        exec(compile(source, "<program>", "exec"), ns)
        return {n: v.cpu() if isinstance(v, torch.Tensor) else v for n, v in ns.items()}


def try_mode(statements: list[Statement], state: State, how: str) -> Failure | None:
    """Runs a program, whose end on the CPU is `state`, in one mode."""
    source = text(statements)
    try:
        got = run_on_device(source, how)
    except Exception as e:
        frames = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == "<program>"]
        line = frames[0].lineno if frames else None
        where = f"line {line} ({source.splitlines()[line - 1].strip()})" if line else "a read"
        head = str(e).strip().split("\n")[0][:60]
        kind = f"{type(e).__name__}: {''.join(c for c in head if not c.isdigit())}"
        return Failure(how, kind, f"{type(e).__name__} at {where}: {e}", statements)
    for name, tolerance in state.tolerances().items():
        difference = differs(got[name], state.ns[name], tolerance)
        if difference is not None:
            return Failure(how, "differs", f"{name} {difference}", statements)
    return None


def check(statements: list[Statement], modes: Iterable[str] = MODES) -> Failure | None:
    """Runs a program on the CPU and in `modes`. The first failure."""
    state = replay(statements)
    for how in modes:
        failure = try_mode(statements, state, how)
        if failure is not None:
            return failure
    return None


def minimise(failure: Failure, seconds: float = 60.0) -> Failure:
    """The same kind of failure with as few statements as can be found in time."""
    end = time.monotonic() + seconds
    best = failure
    size = max(1, len(best.program) // 4)
    while size:
        shrunk = False
        at = len(best.program) - size
        while at > -size and time.monotonic() < end:
            start = max(at, 0)
            fewer = best.program[:start] + best.program[at + size:]
            at -= size
            try:
                found = check(fewer, [failure.mode])
            except Exception:
                continue  # Not a program without them.
            if found is not None and found.kind == failure.kind:
                best, shrunk = found, True
                at = min(at, len(best.program) - size)
        if not shrunk or time.monotonic() > end:
            size //= 2
    return best


def snippet(failure: Failure) -> str:
    """The program as text that runs by itself, and says what differs."""
    body = "".join(f"    {line}\n" for line in text(failure.program).splitlines())
    tolerances = {n: float(f"{e:.3g}")
                  for n, e in replay(failure.program).tolerances().items() if e}
    return f'''\
import torch

{PRELUDE}
def program(device):
{body}    return dict(locals())

want = program("cpu")
with torch.tpu.set_eager_mode("{failure.mode}"):
    got = {{k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in program("tpu").items()}}
tolerance = {tolerances!r}
for name in want:
    if name != "device" and isinstance(want[name], (torch.Tensor, bool, int, float)):
        print(name)
        torch.testing.assert_close(
            got[name], want[name], rtol=0, atol=tolerance.get(name, 0), equal_nan=True)
'''


def generate(genes: Iterable[tuple[str, int]]) -> list[Statement]:
    """A program of up to 60 statements, a gene for each: kind and seed.

    It starts with a few literals, so that there is something to begin with.
    """
    genes = list(genes)
    genes[:0] = [("literal", seed) for _, seed in genes[:5]]
    accepted: list[Statement] = []
    state = State()
    for kind, seed in genes:
        # A few tries: how many kinds find an operand depends on what there is.
        for attempt in range(4):
            rng = random.Random(seed * 4 + attempt)
            try:
                s = random_statements.KINDS[kind](random_statements.Maker(state, rng))
            except (ValueError, IndexError):  # An empty operand has nothing to choose from.
                continue
            if s is None:
                continue
            try:
                state.run(s)
            except Exception:
                state = replay(accepted)
                continue
            s.kind = kind
            accepted.append(s)
            break
        if len(accepted) == 60:
            break
    return accepted


def genes_of(seed: int) -> list[tuple[str, int]]:
    rng = random.Random(seed)
    kinds = random_statements.WEIGHTED
    return [(rng.choice(kinds), rng.getrandbits(16)) for _ in range(rng.randint(24, 72))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Random programs on the device and on the CPU.")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--show", action="store_true", help="print the programs")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    failures = ran = statements = 0
    for seed in range(args.seed, args.seed + args.count):
        if time.monotonic() > end:
            break
        program = generate(genes_of(seed))
        ran += 1
        statements += len(program)
        if args.show:
            print(f"# seed {seed}\n{text(program)}", flush=True)
        failure = check(program, args.modes.split(","))
        if failure is not None:
            failures += 1
            print(f"seed {seed} fails in {minimise(failure)}", flush=True)
        elif seed % 100 == 99:
            print(f"{ran} programs, {statements} statements, {failures} failures", flush=True)
    print(f"{ran} programs, {statements} statements, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
