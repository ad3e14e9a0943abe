"""Datasets of Minari (Farama Foundation) as transitions: `--data minari:D4RL/pen/human-v2`.

A dataset that is not on this machine is downloaded, to where Minari keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from p3s.errors import UserError, note
from p3s.experience.recorded import Recorded
from p3s.machine import needed

PREFIX = "minari:"


def is_minari_name(source: str) -> bool:
    """Whether this names a dataset of Minari, not a file."""
    return source.startswith(PREFIX)


def read_minari(source: str) -> Recorded:
    """All episodes of a dataset, one after another."""
    minari = needed("Minari's datasets require minari", "minari", "h5py", "minari")
    name = source.removeprefix(PREFIX)
    if name not in minari.list_local_datasets():
        note(f"downloading {source}")
    try:
        episodes = list(minari.load_dataset(name, download=True).iterate_episodes())
    except Exception as error:  # whatever its storages and hosts raise
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(f"{source} cannot be read: {reason}", "data") from error
    if not episodes:
        raise UserError(f"{source}: it holds no transitions", "data")

    def joined(parts: list[Any], cut: Callable[[np.ndarray], np.ndarray]) -> Any:
        return _joined([_mapped(part, cut) for part in parts])

    seen = [episode.observations for episode in episodes]
    flags = (
        np.concatenate([np.asarray(getattr(episode, name)) for episode in episodes])
        for name in ("rewards", "terminations", "truncations")
    )
    rewards, terminations, truncations = flags
    return Recorded(
        joined(seen, lambda part: part[:-1]),
        np.concatenate([np.asarray(episode.actions) for episode in episodes]),
        rewards,
        joined(seen, lambda part: part[1:]),
        terminations.astype(bool),
        truncations.astype(bool),
    )


def _mapped(tree: Any, cut: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The tree of arrays with each of them cut."""
    if isinstance(tree, dict):
        return {name: _mapped(part, cut) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_mapped(part, cut) for part in tree)
    return cut(np.asarray(tree))


def _joined(trees: list[Any]) -> Any:
    """Trees of arrays, one after another."""
    first = trees[0]
    if isinstance(first, dict):
        return {name: _joined([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple):
        return tuple(_joined(list(parts)) for parts in zip(*trees, strict=True))
    return np.concatenate(trees)
