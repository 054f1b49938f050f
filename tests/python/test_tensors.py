"""Tensors on the device are as PyTorch's on the CPU: dtypes, factories, views, writes, storages."""

import gc

import harness
import pytest
import torch
from harness import grid, same
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


pytestmark = pytest.mark.usefixtures("native")


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
