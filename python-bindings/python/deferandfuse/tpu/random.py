"""Random numbers: a generator is a seed and a call counter, so the mode doesn't matter."""

from collections.abc import Iterable
from typing import Any

import torch

from deferandfuse import _core

default_generators: tuple[torch.Generator, ...] = (_core.default_generator(),)


def get_rng_state(device: Any = "tpu") -> torch.Tensor:
    """The default generator's state: a ByteTensor of 16 (seed, call counter)."""
    return default_generators[0].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = "tpu") -> None:
    """Sets what ``get_rng_state`` gave. Raises TypeError or RuntimeError for anything else."""
    default_generators[0].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        set_rng_state(state)


def manual_seed(seed: int) -> None:
    default_generators[0].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    manual_seed(seed)


def seed() -> None:
    """Seeds the default generator from the operating system."""
    default_generators[0].seed()


def seed_all() -> None:
    seed()


def initial_seed() -> int:
    return default_generators[0].initial_seed()
