"""What the contract tests share: traced programs, trees compared leaf by leaf, other field values.

A trace costs a hundredth of a compilation, and it shows what no run does: whether an argument is
changed in place, whether something is drawn outside of the keys, whether a field arrives at all.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from p3s.errors import UserError
from p3s.fields.types import bare, check_fields, field_types, text_of
from p3s.networks import MLP, NETWORKS, Model
from p3s.trees import Carried, flatten_names
from p3s.types import EnvSpec, Params, Transition

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
SPECS = {"continuous": EnvSpec.flat(3, 2), "discrete": EnvSpec.flat(3, 4, discrete=True)}
"""The environments that the contracts are checked on, by kind of actions."""


class ContractError(AssertionError):
    """A contract that an algorithm or a scheme breaks, in one sentence."""


def require(holds: Any, broken: str) -> None:
    """Raise ContractError with this sentence unless the contract holds."""
    if not holds:
        raise ContractError(broken)


@dataclass(frozen=True, kw_only=True)
class ProbeNetwork(MLP):
    """Dense layers times a carried 1, which any gradient step on it would move."""

    name: ClassVar[str] = "testing_probe"

    def init(self, key: jax.Array, shapes: Any, output_size: int) -> Params:
        return {"layers": super().init(key, shapes, output_size), "one": Carried(jnp.float32(1.0))}

    def apply(
        self, params: Params, *inputs: jax.Array, train: bool, dropout: Any = None
    ) -> tuple[jax.Array, Params]:
        outputs, _ = super().apply(params["layers"], *inputs, train=train, dropout=dropout)
        return outputs * params["one"].value, params


def probe_network() -> str:
    """The name of the network with a carried leaf, which is known from now on."""
    NETWORKS[ProbeNetwork.name] = ProbeNetwork
    return ProbeNetwork.name


def probes(tree: Params) -> list[Any]:
    """The carried leaves of all probe networks in a tree."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Model))
    models = [node for node in nodes if isinstance(node, Model)]
    found = [model.params["one"] for model in models if model.network.name == ProbeNetwork.name]
    # Moments of an optimizer have the form of a model without carried leaves.
    return [leaf.value for leaf in found if isinstance(leaf, Carried)]


def random_batch(spec: EnvSpec, seed: int, size: int = 7) -> Transition:
    """Transitions with every kind of number in them, always the same ones."""
    draw = np.random.default_rng(seed)
    if spec.discrete:
        action = draw.integers(0, spec.action_size, size).astype(np.int32)
    else:
        action = draw.uniform(-1, 1, (size, spec.action_size)).astype(np.float32)
    return Transition(
        draw.normal(size=(size, spec.observation_size)).astype(np.float32),
        action,
        draw.normal(size=size).astype(np.float32),
        draw.integers(0, 2, size).astype(np.float32),
        draw.normal(size=(size, spec.observation_size)).astype(np.float32),
    )


def stack(trees: list[Any]) -> Any:
    """Trees of arrays along a new leading axis."""
    return jax.tree.map(lambda *parts: np.stack(parts), *trees)


def leaves(tree: Any) -> list[np.ndarray]:
    """All arrays of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(ours: Any, theirs: Any) -> bool:
    """Whether two trees are equal to the bit."""
    return jax.tree.structure(ours) == jax.tree.structure(theirs) and all(
        map(np.array_equal, leaves(ours), leaves(theirs))
    )


def close(ours: Any, theirs: Any) -> bool:
    """Whether two trees are equal but for the order of sums."""
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return all(np.allclose(one, other, rtol=3e-4, atol=3e-6) for one, other in pairs)


def check_numbers(tree: Any, what: str) -> None:
    """Every array of a tree is finite, and float32 or int32."""
    for name, leaf in flatten_names(tree).items():
        array = np.asarray(leaf)
        require(
            array.dtype.name in ("float32", "int32"),
            f"{what} has {array.dtype} numbers ({name}): use float32 or int32",
        )
        require(np.isfinite(array).all(), f"{what} has numbers that are not finite ({name})")


def check_form(after: Any, before: Any, what: str) -> None:
    """A step returns arrays of the same names, shapes and types as it was given."""
    forms = [
        {name: (leaf.shape, leaf.dtype) for name, leaf in flatten_names(tree).items()}
        for tree in (before, after)
    ]
    odd = sorted(name for name, _ in forms[0].items() ^ forms[1].items())
    require(not odd, f"{what} changes the form of what it returns ({', '.join(odd[:3])})")
    require(
        jax.tree.structure(before) == jax.tree.structure(after),
        f"{what} changes the structure of what it returns",
    )


def traced(function: Callable[..., Any], *inputs: Any) -> str:
    """The program that a function is, as text: equal for functions that do the same."""
    # A function of its own each time, or jax would remember the trace of the first.
    closed = jax.make_jaxpr(lambda *given: function(*given))(*inputs)
    constants = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in map(jnp.asarray, closed.consts)
    ]
    return ADDRESS.sub("", str(closed)) + str([np.asarray(leaf).tobytes() for leaf in constants])


def check_purity(function: Callable[..., Any], what: str, *inputs: Any) -> None:
    """A function changes no argument in place, and draws nothing but from its keys."""

    def watched(*inputs: Any) -> Any:
        before = [(jax.tree.structure(given), jax.tree.leaves(given)) for given in inputs]
        result = function(*inputs)
        for given, (structure, old) in zip(inputs, before, strict=True):
            kept = jax.tree.structure(given) == structure and all(
                map(lambda one, other: one is other, jax.tree.leaves(given), old)
            )
            require(kept, f"{what} changes its {type(given).__name__} in place: return a new one")
        return result

    require(
        traced(watched, *inputs) == traced(watched, *inputs),
        f"{what} is not the same twice: draw random numbers from its key alone",
    )


def others(instance: Any, name: str) -> Iterator[Any]:
    """The same algorithm or scheme with other allowed values of a field."""
    value = getattr(instance, name)
    for candidate in _candidates(value, field_types(type(instance))[name]):
        if candidate == value and type(candidate) is type(value):
            continue
        other = dataclasses.replace(instance, **{name: candidate})
        try:
            check_fields(other)
        except UserError:
            continue
        if other.problem() is None:
            yield other


def _candidates(value: Any, expected: Any) -> list[Any]:
    """Values to try for a field of this type, whatever its bounds."""
    if text_of(expected) is not None:
        return ["linear(0.01, 0.001)"]
    expected = bare(expected)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        each = [_candidates(value, choice) for choice in arguments]
        return [*itertools.chain(*each)]
    if origin is Literal:
        return list(arguments)
    if expected is bool:
        return [not value]
    if expected is int:
        return [value + 1, value * 2, value - 1, 3] if isinstance(value, int) else [1, 3, 40]
    if expected is float:
        given = [value * 0.3, value * 3 + 0.1] if isinstance(value, float) else []
        return [*given, 0.5, 0.013, 1.5]
    if origin is tuple:
        if isinstance(value, tuple) and value:
            first = _candidates(value[0], arguments[0])
            return [(item,) * len(value) for item in first] + [value[:1], value[::-1]]
        return [(item, item) for item in _candidates(None, arguments[0])]
    return [probe_network()] if expected is str else []
