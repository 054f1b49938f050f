"""Random programs give the same on the CPU, in Strict and in DeferAndFuse.

60 of them by default. 2,000, in one command:

    RANDOM_PROGRAMS=2000 python -m pytest tests/python/test_random_programs.py

See `random_programs`.
"""

import os

import program_state
import pytest
import random_programs
import random_statements
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

COUNT = int(os.environ.get("RANDOM_PROGRAMS", "60"))

genes = st.lists(
    st.tuples(st.sampled_from(random_statements.WEIGHTED), st.integers(0, 2**16 - 1)),
    min_size=24,
    max_size=72,
)


# Programs shrink as text: that drops statements without changing those that stay.
@settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(genes)
def test_random_programs(genes):
    program = random_programs.generate(genes)
    failure = random_programs.check(program)
    if failure is not None:
        pytest.fail(str(random_programs.minimise(failure)), pytrace=False)


def test_programs_use_every_kind():
    """Otherwise a rule that rejects all of a kind would go unseen."""
    used = {
        s.kind
        for seed in range(60)
        for s in random_programs.generate(random_programs.genes_of(seed))
    }
    assert not set(random_statements.KINDS) - used


def _statement(source, rule, **kwargs):
    return program_state.Statement(source, rule, **kwargs)


def test_a_wrong_result_is_found_and_cut_down(monkeypatch):
    """The test of the test: an addition that is one ulp off fails, in two statements."""
    program = random_programs.generate(random_programs.genes_of(1))
    program += [
        _statement("w0 = torch.tensor([1.0, 2.0]).to(device)", lambda s: 0.0, outs=("w0",)),
        _statement("w1 = w0 + 1", lambda s: s.add("w0", "1"), reads=("w0",), outs=("w1",)),
    ]
    run = random_programs.run_on_device

    def wrong(source, how):
        ns = run(source, how)
        if "w1" in ns:
            ns["w1"] = torch.nextafter(ns["w1"], torch.tensor(9.0))
        return ns

    monkeypatch.setattr(random_programs, "run_on_device", wrong)
    failure = random_programs.minimise(random_programs.check(program))
    assert [s.source[:2] for s in failure.program] == ["w0", "w1"]
    assert "w1 = w0 + 1" in str(failure)


def test_ambiguous_statements_are_rejected():
    base = _statement("t = torch.tensor([1.0, 0.1, 3.0]).to(device)", lambda s: 1e-7, outs=("t",))

    def rejected(*statements):
        with pytest.raises(program_state.Rejected):
            random_programs.replay([base, *statements])

    rejected(_statement("u = t > 1", lambda s: s.exact("t"), reads=("t",), outs=("u",)))
    rejected(
        _statement("t[1:].add_(t[:-1])", lambda s: 0.0, reads=("t[:-1]",), writes="t[1:]")
    )
    rejected(_statement("t.expand(2, 3).zero_()", lambda s: 0.0, writes="t.expand(2, 3)"))
    rejected(_statement("u = t * 1e9", lambda s: 0.0, reads=("t",), outs=("u",)))
