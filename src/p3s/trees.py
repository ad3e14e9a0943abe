"""Pytrees by name: what the arrays of a checkpoint or a policy file are called."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from p3s.errors import UserError
from p3s.types import Params


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
