"""The three modes: how they are chosen, and when each of them runs what was recorded."""

import harness
import pytest
import torch
from deferandfuse import _env
from torch.tpu import EagerMode


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, "strict"),
        ({"TORCHTPU_MODE": ""}, "strict"),
        ({"TORCHTPU_MODE": "strict"}, "strict"),
        ({"TORCHTPU_MODE": "debug"}, "debug"),
        ({"TORCHTPU_MODE": "defer_and_fuse"}, "defer_and_fuse"),
        ({"TORCH_TPU_DEFER_AND_FUSE": "1"}, "defer_and_fuse"),
        ({"TORCH_TPU_DEFER_AND_FUSE": "0"}, "strict"),
        ({"TORCH_TPU_LAUNCH_BLOCKING": "1"}, "debug"),
        ({"TORCH_TPU_LAUNCH_BLOCKING": "1", "TORCHTPU_MODE": "strict"}, "strict"),
    ],
)
def test_the_environment_chooses(monkeypatch, settings, mode):
    for name in ("TORCHTPU_MODE", "TORCH_TPU_DEFER_AND_FUSE", "TORCH_TPU_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert _env.eager_mode() == mode


def test_the_environment_reaches_the_engine(run_python):
    run_python(
        "import torch; assert torch.tpu.eager_mode.value == 'defer_and_fuse'",
        TORCHTPU_MODE="defer_and_fuse",
    )


def test_an_unknown_mode_is_an_error_that_lists_them(run_python):
    done = run_python("import torch", ok=False, TORCHTPU_MODE="eager")
    assert "'eager' isn't a mode; modes are strict, debug, defer_and_fuse" in done.stderr
    with pytest.raises(ValueError, match="modes are strict, debug, defer_and_fuse"):
        torch.tpu.set_eager_mode("eager")


def test_context_manager_and_attribute():
    before = torch.tpu.eager_mode
    with torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE) as mode:
        assert mode is torch.tpu.eager_mode is EagerMode.DEFER_AND_FUSE
        with pytest.raises(KeyError), torch.tpu.set_eager_mode("debug"):
            assert torch.tpu.eager_mode is EagerMode.DEBUG
            raise KeyError
        assert torch.tpu.eager_mode is EagerMode.DEFER_AND_FUSE
        torch.tpu.eager_mode = "debug"
        assert torch.tpu.eager_mode is EagerMode.DEBUG
    assert torch.tpu.eager_mode is before
    # Called for good.
    torch.tpu.set_eager_mode("DEFER_AND_FUSE")
    assert torch.tpu.eager_mode is EagerMode.DEFER_AND_FUSE
    torch.tpu.set_eager_mode(before)
    assert EagerMode.DEFER_NEVER is EagerMode.STRICT
    assert EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING is EagerMode.DEBUG


def flushes() -> dict[str, int]:
    return dict(torch.tpu.stats()["flushes"])


def flushed_by(before: dict[str, int]) -> dict[str, int]:
    now = flushes()
    return {why: n - before.get(why, 0) for why, n in now.items() if n != before.get(why, 0)}


@pytest.mark.parametrize("mode_name", ["strict", "debug"])
def test_eager_modes_flush_each_op(mode_name):
    x = torch.ones(3, device="tpu")
    with harness.mode(mode_name):
        before = flushes()
        y = (x + 1) * 2 - x
        assert flushed_by(before) == {"each_op": 3}
        assert y.tolist() == [3, 3, 3]


READS = {
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "copy_": lambda x: torch.empty(3).copy_(x),
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x[0]),
    "index": lambda x: [0, 1, 2, 3][x[0].int()],
    "tolist": lambda x: x.tolist(),
    "print": lambda x: repr(x),
    "if": lambda x: bool((x > 0).all()),
    "equal": lambda x: torch.equal(x, x + 1),
    "numpy": lambda x: x.numpy(force=True),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_host_read_flushes_what_is_deferred(read):
    x = torch.ones(3, device="tpu")
    torch.tpu.synchronize()
    with harness.mode("defer_and_fuse"):
        before, ran = flushes(), torch.tpu.stats()["executions"]
        y = x + 1
        assert flushed_by(before) == {}
        read(y)
        assert flushed_by(before) == {"host_read": 1}
        assert torch.tpu.stats()["executions"] == ran + 1


def test_other_reasons_to_flush():
    with harness.mode("defer_and_fuse"):
        x = torch.tensor([1.0, 0.0, 2.0], device="tpu")
        torch.tpu.synchronize()
        for act, why in [
            (lambda x: torch.tpu.synchronize(), "synchronize"),
            (lambda x: torch.accelerator.synchronize(), "synchronize"),
            (lambda x: torch.tpu.flush(), "explicit"),
            (lambda x: torch.tpu.Event().record(), "explicit"),
            (lambda x: x.nonzero(), "result_size"),
            (lambda x: x[x > 0], "result_size"),
        ]:
            before = flushes()
            y = x * 2
            act(y)
            assert flushed_by(before) == {why: 1}, why
            torch.tpu.synchronize()


def test_limits_flush(run_python):
    run_python(
        """
        import torch
        x = torch.ones(1000, device="tpu")
        torch.tpu.synchronize()
        torch.tpu.reset_stats()
        for _ in range(40):
            x = x + 1
        flushes = torch.tpu.stats()["flushes"]
        assert flushes == {"pending_ops": 4}, flushes
        assert x[0].item() == 41
        torch.tpu.reset_stats()
        y = torch.ones(5000, device="tpu") + 1
        y = torch.ones(5000, device="tpu") + y
        assert "pending_bytes" in torch.tpu.stats()["flushes"], torch.tpu.stats()
        """,
        TORCHTPU_MODE="defer_and_fuse",
        TORCHTPU_MAX_PENDING_OPS="10",
        TORCHTPU_MAX_PENDING_BYTES="60000",
    )


def test_what_nobody_holds_never_runs():
    with harness.mode("defer_and_fuse"):
        x = torch.ones(3, device="tpu")
        torch.tpu.synchronize()
        dead, ran = torch.tpu.stats()["ops_dead"], torch.tpu.stats()["executions"]
        y = x + 1
        del y
        torch.tpu.synchronize()
        stats = torch.tpu.stats()
        assert (stats["ops_dead"], stats["executions"]) == (dead + 1, ran)


def test_many_ops_are_one_program_and_it_is_found_again():
    with harness.mode("defer_and_fuse"):
        x = torch.linspace(-1, 1, 7, device="tpu")
        torch.tpu.synchronize()
        for again in (False, True):
            torch.tpu.reset_stats()
            y = ((x * 3.0).relu() + 1).cumsum(0)
            y.cpu()
            stats = torch.tpu.stats()
            assert stats["ops_recorded"] == 4 and sum(stats["flushes"].values()) == 1
            assert stats["cache_hits"] == int(again) and stats["regions_compiled"] == int(not again)
        # A number that changes compiles once more and is an argument of the program then.
        compiled = []
        for k in (4.0, 5.0, 6.0, 7.0):
            torch.tpu.reset_stats()
            got = ((x * k).relu() + 1).cumsum(0).cpu()
            torch.testing.assert_close(got, ((x.cpu() * k).relu() + 1).cumsum(0))
            compiled.append(torch.tpu.stats()["regions_compiled"])
        assert compiled == [1, 0, 0, 0]


def test_what_is_pending_survives_a_change_of_mode():
    x = torch.ones(3, device="tpu")
    with harness.mode("defer_and_fuse"):
        y = x + 1
    z = y * 2
    assert (y.tolist(), z.tolist()) == ([2, 2, 2], [4, 4, 4])


def test_the_modes_agree_on_training_steps():
    """Gradients, an optimiser and dropout; fused programs round differently by a few ulps."""

    def losses() -> list[float]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Tanh())
        net.to("tpu")
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.randn(6, 4, device="tpu")
        seen = []
        for _ in range(3):
            loss = net(x).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen.append(loss.item())
        return seen

    told = {}
    for name in harness.MODES:
        with harness.mode(name):
            told[name] = losses()
    assert told["strict"] == told["debug"]
    assert told["defer_and_fuse"] == pytest.approx(told["strict"], rel=1e-6)
    assert len(set(told["strict"])) == 3, "nothing was trained"
