"""Autograd, modules, copies and files, autocast, streams: as PyTorch has them."""

import copy
import io
import pickle
import threading
import warnings

import pytest
import torch
from harness import grid, same
from torch import nn

pytestmark = pytest.mark.usefixtures("native")


# ---- autograd


def test_gradients(mode):
    grads = {}
    for device in ("tpu", "cpu"):
        x = grid(device).div_(10).requires_grad_()
        w = torch.linspace(-1, 1, 8, device=device).view(4, 2).requires_grad_()
        (x @ w).tanh().square().sum().backward()
        x[1:].sin().sum().backward()  # Accumulates.
        grads[device] = (x.grad, w.grad)
    for got, want in zip(grads["tpu"], grads["cpu"], strict=True):
        assert got.is_tpu
        torch.testing.assert_close(got.cpu(), want)


def test_grad_modes(mode):
    x = grid("tpu").requires_grad_()
    with torch.no_grad():
        y = x * 2
        x.mul_(1)
    assert not y.requires_grad and x.requires_grad
    with torch.inference_mode():
        z = x + 1
        z.add_(1)
        assert z.is_inference() and z.sum().item() == 90
    with pytest.raises(RuntimeError, match=r"[Ii]nference tensors"):
        (x * z).sum()
    d = x.detach()
    assert not d.requires_grad and d.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)
    y = (x * x).sum()
    x.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_hooks(mode):
    seen = []
    x = torch.ones(3, device="tpu", requires_grad=True)
    x.register_hook(lambda g: seen.append(("tensor", g.device.type)) or g * 2)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("grad", p.grad.tolist())))
    net = nn.Linear(3, 1, bias=False).to("tpu")
    nn.init.ones_(net.weight)
    net.register_forward_hook(lambda m, args, out: seen.append(("forward", out.item())))
    net.register_full_backward_hook(lambda m, gin, gout: seen.append(("backward", gout[0].item())))
    net(x * 1).backward()
    assert seen == [
        ("forward", 3.0),
        ("backward", 1.0),
        ("tensor", "tpu"),
        ("grad", [2.0, 2.0, 2.0]),
    ]


def test_functional_transforms_and_double_backward(mode):
    x = torch.tensor([0.5, -1.0], device="tpu", requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [3.0, -6.0]
    f = torch.func.grad(lambda t: (t * t).sum())
    assert torch.func.vmap(f)(grid("tpu")).sum().item() == 132
    used = torch.utils.checkpoint.checkpoint(lambda t: t.exp(), x, use_reentrant=False)
    used.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), x.detach().cpu().exp())


def test_a_custom_function_and_other_threads(mode):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    sums = [0.0] * 4

    def work(i: int) -> None:
        x = torch.full((3,), float(i), device="tpu", requires_grad=True)
        Double.apply(x).sum().backward()
        sums[i] = x.grad.sum().item() + Double.apply(x).sum().item()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [6 + 6 * i for i in range(4)]


# ---- modules, copies, files


def small_net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Linear(4, 2))


def test_a_module_moves_and_its_state_travels(mode):
    here = small_net()
    there = copy.deepcopy(here).to("tpu")
    assert all(t.is_tpu for t in there.state_dict().values())
    x = grid("cpu")
    torch.testing.assert_close(there(x.to("tpu")).cpu(), here(x), rtol=1e-5, atol=1e-5)
    # Loaded in either direction, after it changed.
    there[0].weight.data.mul_(2)
    here.load_state_dict(there.state_dict())
    same(there[0].weight.detach(), here[0].weight.detach())
    other = small_net().to("tpu")
    other.load_state_dict(here.state_dict())
    there.eval(), other.eval(), here.eval()
    same(there(x.to("tpu")), other(x.to("tpu")).cpu())
    back = there.to("cpu")
    torch.testing.assert_close(back(x), here(x))
    assert nn.Linear(2, 2, device="tpu", dtype=torch.bfloat16).half().weight.dtype == torch.half


def test_deepcopy_keeps_sharing_and_grads(mode):
    x = grid("tpu")
    a, b = copy.deepcopy([x, x[1]])
    a.zero_()
    assert b.sum().item() == 0 and x.sum().item() == 66
    p = grid("tpu").requires_grad_()
    p.sum().backward()
    q = copy.deepcopy(p)
    q.grad.zero_()
    assert q.is_leaf and q.requires_grad and p.grad.sum().item() == 12
    assert isinstance(copy.deepcopy(nn.Parameter(p)), nn.Parameter)


def test_pickle(mode):
    x = grid("tpu")
    y = pickle.loads(pickle.dumps(x.t()))
    assert y.is_tpu and y.stride() == (1, 4)
    same(y, grid("cpu").t())
    y.zero_()
    assert x.sum().item() == 66
    module = pickle.loads(pickle.dumps(small_net().to("tpu")))
    assert module[0].weight.is_tpu


@pytest.mark.parametrize("place", [None, "cpu", "tpu"])
@pytest.mark.parametrize("origin", ["tpu", "cpu"])
def test_save_and_load(mode, origin, place):
    x = grid(origin)
    file = io.BytesIO()
    torch.save({"x": x, "row": x[1], "half": x.to(torch.bfloat16)}, file)
    file.seek(0)
    got = torch.load(file, map_location=place)
    want = place or origin
    assert {t.device.type for t in got.values()} == {want}
    same(got["x"], grid("cpu"))
    same(got["half"], grid("cpu").to(torch.bfloat16))
    got["row"].zero_()
    assert got["x"].sum().item() == 44, "the view is still one"


def test_an_optimiser_s_state_travels(mode):
    p = nn.Parameter(torch.ones(3, device="tpu"))
    optimiser = torch.optim.AdamW([p], lr=0.1)
    p.sum().backward()
    optimiser.step()
    file = io.BytesIO()
    torch.save(optimiser.state_dict(), file)
    file.seek(0)
    q = nn.Parameter(p.detach().cpu())
    q.grad = torch.ones(3)
    other = torch.optim.AdamW([q], lr=0.1)
    other.load_state_dict(torch.load(file, map_location="cpu"))
    optimiser.step()
    other.step()
    torch.testing.assert_close(p.detach().cpu(), q.detach())


# ---- autocast, streams


def test_autocast(mode):
    x = grid("tpu").requires_grad_()
    w = nn.Linear(4, 2).to("tpu")
    with torch.autocast("tpu"):
        y = w(x)
        assert torch.get_autocast_dtype("tpu") == y.dtype == torch.bfloat16
        assert y.softmax(-1).dtype == y.exp().dtype == torch.float32
        assert torch.cat([y, y.float()]).dtype == torch.float32
        assert (y + 1).dtype == torch.bfloat16
        with torch.autocast("tpu", enabled=False):
            assert (x @ x.t()).dtype == torch.float32
        with torch.autocast("tpu", dtype=torch.float16):
            z = x.detach()  # The cast of a leaf is cached: torch's own.
            assert (z @ z.t()).dtype == torch.float16
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.functional.binary_cross_entropy(y.sigmoid(), y.sigmoid())
        y.float().sum().backward()
    assert x.grad.dtype == w.weight.grad.dtype == torch.float32
    assert w(x).dtype == torch.float32
    want = (w.weight.detach().sum(0) * torch.ones(3, 1, device="tpu")).cpu()
    torch.testing.assert_close(x.grad.cpu(), want, rtol=2e-2, atol=2e-2)


@pytest.mark.falls_back("aten::_amp_foreach_non_finite_check_and_unscale")
@pytest.mark.filterwarnings("ignore:aten")
def test_a_gradient_scaler(mode):
    p = nn.Parameter(torch.ones(3, device="tpu"))
    optimiser = torch.optim.SGD([p], lr=1.0)
    scaler = torch.amp.GradScaler("tpu", init_scale=4.0)
    for factor, want in ((0.5, 0.5), (float("inf"), 0.5)):
        optimiser.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        scaler.step(optimiser)
        scaler.update()
        assert p.tolist() == [want] * 3, "a step with an infinite gradient is skipped"
    assert scaler.get_scale() == 2.0


def test_streams_and_events(mode):
    stream = torch.tpu.Stream()
    with torch.tpu.stream(stream), torch.tpu.device(0):
        x = torch.ones(3, device="tpu") + 1
    start, end = (torch.tpu.Event(enable_timing=True) for _ in range(2))
    start.record()
    x = x * 2
    end.record()
    torch.tpu.current_stream().wait_event(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0 and end.query() and isinstance(end, torch.tpu.Event)
    stream.synchronize()
    x.record_stream(stream)
    assert x.sum().item() == 12


def test_no_warning_in_ordinary_use(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = small_net().to("tpu")
        net(grid("tpu")).sum().backward()
        torch.optim.AdamW(net.parameters()).step()
        torch.tpu.synchronize()
