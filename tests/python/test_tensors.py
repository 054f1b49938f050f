"""Tensors on the device are as PyTorch's on the CPU: dtypes, views, writes, autograd, files."""

import copy
import gc
import io
import pickle
import threading
import warnings

import harness
import pytest
import torch
from torch import nn

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def same(got, want) -> None:
    """Raises AssertionError unless two tensors agree in values, bit for bit, shape and dtype."""
    assert got.dtype == want.dtype and got.shape == want.shape
    got, want = got.cpu().resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg()
    got, want = (t.clone(memory_format=torch.contiguous_format).view(-1) for t in (got, want))
    assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), f"{got}\nnot\n{want}"


def grid(device: str) -> torch.Tensor:
    """The 3x4 tensor that most tests share, so that they share programs too."""
    return torch.arange(12.0).reshape(3, 4).to(device)


@pytest.fixture(autouse=True)
def native(request):
    """Nothing here may need the CPU, but for the op that a test is marked with."""
    before = harness.fallbacks()
    yield
    marker = request.node.get_closest_marker("falls_back")
    assert set(harness.new_fallbacks(before)) <= set(marker.args if marker else ())


# ---- to and from the device


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
def test_every_dtype_goes_to_the_device_and_back(mode, dtype):
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 100.0, -5.0]])
    if not (dtype.is_signed or dtype == torch.bool):
        values = values.abs()
    x = (values + 0.5j if dtype.is_complex else values).to(dtype)
    there = x.to("tpu")
    assert there.dtype == dtype and there.is_tpu and there.device.index == 0
    same(there, x)
    same(there.t(), x.t())  # A view is read by an op.
    same(x.t().to("tpu"), x.t())  # A strided tensor is sent.


def test_special_values_survive(mode):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    same(x.to("tpu"), x)
    same(x.to("tpu").clone(), x)


def test_copies_convert_and_broadcast(mode):
    x = torch.tensor([1.7, -2.7, 300.0])
    same(x.to("tpu").to(torch.int32), x.to(torch.int32))
    same(x.to("tpu", torch.float64), x.double())
    target = torch.zeros(2, 3, dtype=torch.int64, device="tpu")
    same(target.copy_(x), torch.zeros(2, 3, dtype=torch.int64).copy_(x))
    host = torch.zeros(2, 3, dtype=torch.float64)
    same(host.copy_(x.to("tpu")), x.double().expand(2, 3))
    y = torch.tensor([1 + 2j, 3 - 4j])
    same(y.to("tpu").conj().cpu(), y.conj())
    same(y.to("tpu").conj().imag.cpu(), y.conj().imag)
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match"):
        target.copy_(torch.ones(4))


def test_empty_and_scalar_tensors(mode):
    same(torch.empty(0, 3).to("tpu"), torch.empty(0, 3))
    same(torch.ones(2, 0, device="tpu").sum(0), torch.ones(2, 0).sum(0))
    same(torch.ones(0, 3, device="tpu").sum(0), torch.ones(0, 3).sum(0))
    assert torch.tensor(2.5, device="tpu").item() == 2.5
    assert int(torch.tensor(7, device="tpu")) == 7
    assert complex(torch.tensor(1 + 2j, device="tpu")) == 1 + 2j
    assert f"{torch.tensor(3.14159, device='tpu'):.2f}" == "3.14"
    assert [10, 20, 30][torch.tensor(2, device="tpu")] == 30


def test_printing(mode):
    for x in (grid("cpu"), torch.tensor([]), torch.tensor(True), torch.rand(40, 40)):
        want = repr(x)
        got = "".join(repr(x.to("tpu")).split())
        assert got.replace(",device='tpu:0'", "") == "".join(want.split())
    x = grid("tpu").requires_grad_()
    assert "device='tpu:0'" in repr(x) and "requires_grad=True" in repr(x)
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        grid("tpu").numpy()


FACTORIES = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int16, device=d),
    "full": lambda d: torch.full((2, 3), 7, device=d),
    "full bool": lambda d: torch.full((2,), True, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "as_tensor": lambda d: torch.as_tensor([1.5, 2.5], dtype=torch.float64, device=d),
    "arange": lambda d: torch.arange(2, 11, 3, device=d),
    "arange float": lambda d: torch.arange(0, 1, 0.25, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "zeros_like": lambda d: torch.zeros_like(grid(d)),
    "full_like": lambda d: torch.full_like(grid(d), 2, dtype=torch.int32),
    "new_full": lambda d: grid(d).new_full((2,), 5),
    "new_tensor": lambda d: grid(d).new_tensor([1, 2]),
    "empty, filled": lambda d: torch.empty(2, 3, device=d).fill_(3),
    "empty_strided, filled": lambda d: torch.empty_strided((2, 3), (1, 2), device=d).fill_(3),
    "channels_last": lambda d: torch.zeros(1, 2, 3, 3, device=d).to(
        memory_format=torch.channels_last
    ),
    "scalar_tensor": lambda d: torch.scalar_tensor(2.5, device=d),
    "complex": lambda d: torch.complex(grid(d), grid(d)),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_factories(mode, make):
    got, want = make("tpu"), make("cpu")
    assert got.is_tpu and got.stride() == want.stride()
    same(got, want)


def test_the_default_device():
    try:
        torch.set_default_device("tpu")
        x = torch.ones(2)
    finally:
        torch.set_default_device("cpu")
    assert x.is_tpu and not torch.ones(2).is_tpu
    with torch.device("tpu"):
        assert nn.Linear(2, 2).weight.is_tpu


# ---- views

VIEWS = {
    "slice": lambda x: x[1:, ::2],
    "index": lambda x: x[1],
    "negative index": lambda x: x[-1, 1:3],
    "transpose": lambda x: x.t(),
    "view": lambda x: x.view(2, 6),
    "reshape": lambda x: x.reshape(4, 3),
    "unsqueeze": lambda x: x[:, None, 1:],
    "squeeze": lambda x: x[:1].squeeze(0),
    "permute": lambda x: x.view(2, 3, 2).permute(2, 0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select of transpose": lambda x: x.t()[2],
    "diagonal": lambda x: x.diagonal(),
    "diagonal below": lambda x: x.diagonal(-1),
    "as_strided": lambda x: x.as_strided((2, 2), (4, 2), 1),
    "as_strided skewed": lambda x: x.as_strided((3, 3), (3, 1), 2),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(3)[2],
    "unbind": lambda x: x.unbind(1)[3],
    "flatten": lambda x: x.flatten()[2:9],
    "movedim": lambda x: x.movedim(0, 1)[1:],
    "view dtype": lambda x: x.view(torch.int32),
    "view narrower dtype": lambda x: x.view(torch.int16),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2))),
    "imag": lambda x: torch.view_as_complex(x.view(3, 2, 2)).imag,
    "detach": lambda x: x.detach(),
    "alias": lambda x: x.view_as(x),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_has_torch_s_window_and_shares_its_base(mode, view):
    there, here = grid("tpu"), grid("cpu")
    got, want = view(there), view(here)
    assert (got.shape, got.stride()) == (want.shape, want.stride())
    assert got.storage_offset() == want.storage_offset()
    assert got.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
    assert got.data_ptr() - there.data_ptr() == want.data_ptr() - here.data_ptr()
    same(got, want)
    # Written through the view, seen in the base …
    got.mul_(3)
    want.mul_(3)
    same(there, here)
    # … and the other way about.
    there[1:].add_(1)
    here[1:].add_(1)
    same(got, want)
    got.fill_(2)
    want.fill_(2)
    same(there, here)


def test_overlapping_windows(mode):
    """Reading through one is well-defined, writing an error as in torch."""

    def read(device: str) -> list[torch.Tensor]:
        x = grid(device)
        return [
            x.flatten().unfold(0, 4, 1).sum(1),
            x.as_strided((3, 3), (2, 1)) * 2,
            x[:1].expand(3, 4) + x,
        ]

    for got, want in zip(read("tpu"), read("cpu"), strict=True):
        same(got, want)
    # An element that is written twice is an error; one that is read too is read first (on the
    # CPU, where that isn't so, it is an error).
    with pytest.raises(RuntimeError, match="single memory location"):
        grid("tpu")[:1].expand(3, 4).add_(1)
    x = grid("tpu")
    x[1:].add_(x[:-1])
    same(x, torch.tensor([[0.0, 1, 2, 3], [4, 6, 8, 10], [12, 14, 16, 18]]))
    torch.add(x[1:], 1, out=x[:-1])
    same(x, torch.tensor([[5.0, 7, 9, 11], [13, 15, 17, 19], [12, 14, 16, 18]]))


def test_a_value_read_before_a_write_stays(mode):
    x = grid("tpu")
    doubled, window, copied = x * 2, x[1], x.clone()
    x.zero_()
    assert doubled.sum().item() == 132 and copied.sum().item() == 66
    assert window.sum().item() == 0


def test_views_of_one_storage_written_in_turn(mode):
    def program(device: str) -> torch.Tensor:
        x = grid(device)
        rows, columns = x[::2], x.t()[1:3]
        rows += 10
        columns *= rows.sum()
        x[x > 2000] = -1
        rows.t()[0].copy_(torch.tensor([5.0, 6.0]))
        x[:, 3] = x[:, 0]
        x[0], x[1] = x[1].clone(), x[0].clone()
        return x

    same(program("tpu"), program("cpu"))


def test_set_data_and_swaps(mode):
    x, y = grid("tpu"), torch.ones(2, device="tpu")
    x.data = y
    x.add_(1)
    assert y.tolist() == [2, 2] and x.data_ptr() == y.data_ptr()
    p = nn.Parameter(grid("tpu"))
    p.data.mul_(2)
    assert p.sum().item() == 132


# ---- in-place and out=


def test_in_place(mode):
    def program(device: str) -> tuple[torch.Tensor, int]:
        x = grid(device)
        version, address = x._version, x.data_ptr()
        y = x.add_(1).mul_(x).clamp_(max=50).sub_(torch.ones(4, device=device))
        y += True
        y /= 3
        y[1] **= 2
        assert y is x and x.data_ptr() == address
        return x, x._version - version

    (got, writes), (want, expected) = program("tpu"), program("cpu")
    torch.testing.assert_close(got.cpu(), want, rtol=1e-6, atol=0)
    assert writes == expected
    i = torch.ones(3, dtype=torch.int32, device="tpu")
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        i.add_(1.5)
    assert i.tolist() == [1, 1, 1]
    same(i.mul_(2), torch.full((3,), 2, dtype=torch.int32))


def test_out(mode):
    x = grid("tpu")
    out = torch.empty(3, 4, device="tpu")
    assert torch.add(x, x, out=out) is out
    same(out, grid("cpu") * 2)
    wide = torch.empty(3, 4, dtype=torch.float64, device="tpu")
    same(torch.mul(x, 3, out=wide), (grid("cpu") * 3).double())
    rows = torch.zeros(6, 4, device="tpu")
    torch.exp(x * 0, out=rows[::2])
    assert rows.sum(1).tolist() == [4, 0] * 3
    empty = torch.empty(0, device="tpu")
    same(torch.matmul(x, x.t(), out=empty), grid("cpu") @ grid("cpu").t())
    with pytest.warns(UserWarning, match="resized"):
        torch.neg(x, out=torch.empty(2, device="tpu"))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, x, out=torch.empty(3, 4, dtype=torch.int32, device="tpu"))
    values, indices = torch.empty(3, device="tpu"), torch.empty(3, dtype=torch.long, device="tpu")
    torch.max(x, 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([3, 7, 11], [3, 3, 3])


def test_resize_keeps_what_fits(mode):
    x = grid("tpu")
    view = x[0]
    x.resize_(5, 4)
    same(x.flatten()[:12], grid("cpu").flatten())
    x.resize_(2, 2)
    same(x, torch.arange(4.0).view(2, 2))
    x.fill_(9)
    assert view.tolist() == [9, 9, 9, 9], "a view still shares the storage"
    with pytest.raises(RuntimeError, match=r"negative|invalid"):
        x.resize_(-1)


# ---- type promotion


OPERANDS = {
    "bool": lambda d: torch.tensor([True, False], device=d),
    "u8": lambda d: torch.tensor([1, 200], dtype=torch.uint8, device=d),
    "i32": lambda d: torch.tensor([1, -2], dtype=torch.int32, device=d),
    "f16": lambda d: torch.tensor([1.5, -2.5], dtype=torch.float16, device=d),
    "f32": lambda d: torch.tensor([1.5, -2.5], device=d),
    "c64": lambda d: torch.tensor([1 + 1j, -2j], device=d),
    "0-dim i64": lambda d: torch.tensor(3, device=d),
    "0-dim f64": lambda d: torch.tensor(3.5, dtype=torch.float64, device=d),
    "0-dim on the CPU": lambda d: torch.tensor(3.5, dtype=torch.float64),
    "True": lambda d: True,
    "2": lambda d: 2,
    "2.5": lambda d: 2.5,
    "1j": lambda d: 1j,
}


@pytest.mark.parametrize("left", list(OPERANDS)[:6])
def test_promotion(left):
    """Each pair of operands has the dtype and values that torch gives them."""
    with harness.mode("defer_and_fuse"):
        pairs = []
        for name, right in OPERANDS.items():
            if (left, name) == ("f16", "1j"):
                continue  # complex32, which the device doesn't have: an error that says so.
            for op in (torch.add, torch.mul, torch.true_divide, torch.eq):
                got, want = (op(OPERANDS[left](d), right(d)) for d in ("tpu", "cpu"))
                assert got.dtype == want.dtype, f"{op.__name__} gives {got.dtype}"
                pairs.append((got, want))
        torch.tpu.flush()
        for got, want in pairs:
            torch.testing.assert_close(got.cpu(), want, equal_nan=True)


def test_an_integer_divided_by_zero_does_not_end_the_process(mode):
    zero = torch.zeros(2, dtype=torch.int32, device="tpu")
    for op in (torch.floor_divide, torch.remainder, torch.fmod):
        op(torch.ones_like(zero), zero).cpu()
    assert (torch.ones_like(zero) / zero).tolist() == [float("inf")] * 2


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


# ---- storages


def test_storages(mode):
    x = grid("tpu")
    storage = x.untyped_storage()
    assert (storage.nbytes(), storage.device.type) == (48, "tpu")
    assert bytes(storage.cpu()) == bytes(grid("cpu").untyped_storage())
    alias = torch.empty(0, device="tpu").set_(storage, 1, (2, 2), (4, 1))
    alias.mul_(0)
    assert x.tolist() == [[0, 0, 0, 3], [4, 0, 0, 7], [8, 9, 10, 11]]
    assert torch.empty(0, device="tpu").set_(x).is_set_to(x)
    assert x.set_().numel() == 0 and alias.numel() == 4
    clone = storage.clone()
    storage.fill_(0)
    assert alias.sum().item() == 0 and bytes(clone.cpu()) != bytes(storage.cpu())
    storage.copy_(clone)
    storage.resize_(64)
    y = torch.empty(0, device="tpu").set_(storage, 0, (12,))
    assert y.tolist() == [0, 0, 0, 3, 4, 0, 0, 7, 8, 9, 10, 11]
    same(torch.empty(0, device="tpu").set_(storage.cpu().tpu(), 0, (12,)), y.cpu())


def test_freeing_a_storage_by_hand_and_bringing_it_back(mode):
    """What FSDP does with parameters."""
    x = grid("tpu")
    torch.tpu.synchronize()
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0
    x.untyped_storage().resize_(48)
    x.copy_(grid("cpu"))
    assert x.sum().item() == 66


def test_addresses_tell_storages_apart():
    tensors = [torch.empty(3, device="tpu") for _ in range(10)]
    assert len({t.data_ptr() for t in tensors} - {0}) == 10
    assert tensors[0][1:].data_ptr() == tensors[0].data_ptr() + 4


def test_memory_comes_back(mode):
    torch.tpu.synchronize()
    gc.collect()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1000, 1000, device="tpu")
    y = x + 1
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before >= 8_000_000
    assert torch.accelerator.memory_allocated() == torch.tpu.memory_allocated()
    for _ in range(5):
        y = y * 2
        y.add_(1)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before < 9_000_000
    del x, y
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before < 1_000_000
    assert torch.tpu.max_memory_allocated() - before >= 8_000_000
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() - before < 1_000_000


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
@pytest.mark.filterwarnings("ignore:aten.. * isn't native")
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
