"""Pytrees: which leaves are trained, and what leaves are called in files.

Parameters are of two kinds. **Trained** leaves take gradients; evolution and perturbation touch
them. **Carried** leaves (running statistics, counters, an epsilon schedule) travel with a policy
into copies, guides, checkpoints and files, and nobody differentiates, averages or mutates them.
A `Carried` node marks the second kind, so no scheme has to ask an algorithm which is which:

    part = trained(policy)                      the tree without its carried leaves
    policy = merge(changed(part), policy)       changed leaves, and what `policy` carries
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.types import Params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Carried:
    """Leaves that travel with parameters and are not trained."""

    value: Any


def _is_carried(node: Any) -> bool:
    return isinstance(node, Carried)


def trained(tree: Params) -> Params:
    """The tree without its carried leaves; their places are empty."""
    return jax.tree.map(lambda node: None if _is_carried(node) else node, tree, is_leaf=_is_carried)


def merge(part: Params, carrier: Params) -> Params:
    """A tree with the trained leaves of `part` and the carried ones of `carrier`."""

    def choose(leaf: Any, node: Any) -> Any:
        return node if _is_carried(node) else leaf

    return jax.tree.map(choose, part, carrier, is_leaf=lambda node: node is None)


def follow(targets: Params, online: Params, rate: float) -> Params:
    """Move targets a little towards the online networks: (1 - rate) target + rate online.

    Carried leaves are copied.
    """
    moved = jax.tree.map(
        lambda target, leaf: target + rate * (leaf - target), trained(targets), trained(online)
    )
    return merge(moved, online)


def follow_every(
    targets: Params, online: Params, rate: float, count: jax.Array, period: int
) -> Params:
    """`follow` whenever `count` is a multiple of `period`; a rate of 1 copies to the bit."""
    due = count % period == 0

    def move(target: jax.Array, leaf: jax.Array) -> jax.Array:
        return jnp.where(due, (1.0 - rate) * target + rate * leaf, target)

    moved = jax.tree.map(move, trained(targets), trained(online))
    carried = jax.tree.map(lambda target, leaf: jnp.where(due, leaf, target), targets, online)
    return merge(moved, carried)


def pick(stacked: Params, index: Any) -> Params:
    """One of N stacked trees, or several of them, stacked."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def put(stacked: Params, index: Any, one: Params) -> Params:
    """N stacked trees with one of them replaced."""
    return jax.tree.map(lambda leaf, new: jnp.asarray(leaf).at[index].set(new), stacked, one)


def flatten_names(tree: Params) -> dict[str, Any]:
    """A pytree as a flat dictionary with one readable name for each leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def unflatten_names(template: Params, arrays: dict[str, np.ndarray], what: str) -> Params:
    """The inverse, into the shape of `template`; UserError where names, shapes or types differ."""
    expected = flatten_names(template)
    if expected.keys() != arrays.keys():
        odd = sorted(expected.keys() ^ arrays.keys())
        raise UserError(f"{what} does not hold the expected arrays: {', '.join(odd[:3])}")
    for name, leaf in expected.items():
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise UserError(
                f"{what}: {name} should be {leaf.dtype}{list(leaf.shape)}, "
                f"not {found.dtype}{list(found.shape)}"
            )
    leaves = [arrays[name] for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def unstack(stacked: Params) -> list[Params]:
    """Stacked parameters one by one, on the host."""
    on_host = jax.device_get(stacked)
    return [pick(on_host, index) for index in range(len(jax.tree.leaves(on_host)[0]))]
