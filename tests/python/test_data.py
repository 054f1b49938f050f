"""DataLoader, and processes forked from one that uses the device."""

import os
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset, TensorDataset

ROWS = torch.arange(24.0).reshape(12, 2)


class OnTheDevice(Dataset):
    """What nobody should do: a worker that uses the device."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.ones(2, device="tpu") * i


@pytest.fixture(autouse=True)
def used():
    """The device is in use, with work pending, when a worker is forked."""
    x = torch.ones(3, device="tpu") + 1
    yield x
    assert x.sum().item() == 6, "the parent goes on"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_data_loader(mode, workers, pin_memory):
    loader = DataLoader(
        TensorDataset(ROWS), batch_size=4, num_workers=workers, pin_memory=pin_memory
    )
    got = [batch.to("tpu", non_blocking=True) * 2 for (batch,) in loader]
    assert torch.equal(torch.cat(got).cpu(), ROWS * 2)


def test_shuffling_with_a_generator_on_the_cpu():
    order = [
        torch.cat(
            [
                b
                for (b,) in DataLoader(
                    TensorDataset(ROWS), shuffle=True, generator=torch.Generator().manual_seed(4)
                )
            ]
        )
        for _ in range(2)
    ]
    assert torch.equal(*order) and not torch.equal(order[0], ROWS)


def test_pinning_is_harmless():
    assert torch.equal(ROWS.pin_memory(), ROWS)
    assert torch.equal(ROWS.pin_memory().to("tpu", non_blocking=True).cpu(), ROWS)
    with pytest.raises(RuntimeError, match=r"[Oo]nly dense CPU tensors can be pinned"):
        torch.empty(2, device="tpu", pin_memory=True)


def test_a_worker_that_uses_the_device_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"forked subprocess(.|\n)*'spawn' start method"):
        list(DataLoader(OnTheDevice(), num_workers=1))


def in_child(work) -> str:
    """What `work()` returns, or its error, in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(work())
        except BaseException as e:
            told = f"{type(e).__name__}: {e}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return told


def test_a_forked_child(mode, used):
    assert in_child(torch.tpu.is_available) == "False"
    # The CPU works, and the parent's tensors may be dropped.
    assert in_child(lambda: (torch.ones(3) @ torch.ones(3)).item()) == "3.0"
    for act in (
        lambda: used.cpu(),
        lambda: used + 1,
        lambda: torch.empty(2, device="tpu"),
        lambda: torch.ones(2).to("tpu"),
        lambda: torch.tpu.synchronize(),
        lambda: torch.tpu.init(),
    ):
        told = in_child(act)
        assert told.startswith("RuntimeError: Cannot re-initialize tpu in a forked"), told
        assert "'spawn'" in told


def spawned(queue) -> None:
    queue.put(torch.ones(3, device="tpu").sum().item())


def test_a_spawned_process_has_a_device_of_its_own():
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=spawned, args=(queue,))
    process.start()
    process.join()
    assert process.exitcode == 0 and queue.get() == 3


def test_device_memory_cannot_be_shared_with_another_process(used):
    with pytest.raises(RuntimeError, match=r"only available on CPU|tpu"):
        ForkingPickler.dumps(used)
    assert pickle.loads(pickle.dumps(used)).sum().item() == 6, "a copy can be sent"
