"""Where a view starts is no part of the program that reads or writes it.

Each case does the same on tpu and on the CPU at a new position each time, and must stop compiling
at the second one.
"""

import pytest
import torch

ROUNDS = 12


def minibatch(data, i):
    return (data[i * 8 : (i + 1) * 8] * 2).sum(0)


def element(data, i):
    return data[i, 3] + 1


def column(data, i):
    return data[:, i % 10].cumsum(0)


def every_third_row(data, i):
    return data[i : i + 40 : 3] + 1


def overlapping_windows(data, i):
    return data.view(-1)[i : i + 20].unfold(0, 5, 3) + 1


def rows_within_an_iteration(data, i):
    return sum(data[i + j].sum() for j in range(6))


def fill_element(data, i):
    data[i, 1] = 0.5
    return data


def fill_every_third(data, i):
    data.view(-1)[i : i + 20 : 3].mul_(2)
    return data


def write_column(data, i):
    data[:, i % 10 : i % 10 + 1] = data[:, :1].cos()
    return data


def write_block_of_a_cache(data, i):
    cache = data[:96].view(2, 4, 12, 10)
    cache[:, :, i : i + 1] = cache[:, :, :1] + 1
    return cache


@pytest.mark.parametrize("mode", ["strict", "defer_and_fuse"])
@pytest.mark.parametrize(
    "body",
    [
        minibatch,
        element,
        column,
        every_third_row,
        overlapping_windows,
        rows_within_an_iteration,
        fill_element,
        fill_every_third,
        write_column,
        write_block_of_a_cache,
    ],
)
def test_positions_share_a_program(mode, body):
    torch.manual_seed(0)
    expected = torch.rand(100, 10)
    ours = expected.to("tpu")
    with torch.tpu.set_eager_mode(mode):
        for i in range(ROUNDS):
            torch.testing.assert_close(body(ours, i).cpu(), body(expected, i))
            if i == 1:
                compiled = torch.tpu.stats()["regions_compiled"]
    assert torch.tpu.stats()["regions_compiled"] == compiled


def test_a_position_that_is_always_the_same_is_a_constant():
    data = torch.arange(12.0, device="tpu")
    with torch.tpu.set_eager_mode("defer_and_fuse"):
        compiled = torch.tpu.stats()["regions_compiled"]
        for _ in range(3):
            assert (data[3:5] * 7).tolist() == [21.0, 28.0]
    assert torch.tpu.stats()["regions_compiled"] == compiled + 1
