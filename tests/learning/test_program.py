"""A stretch of updates as one compiled call, and the same updates one by one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.algorithms import ALGORITHMS
from p3s.experience import Batches
from p3s.experience.rows import pack, unpack_transitions
from p3s.learning.program import Program, repeated_unit
from p3s.schemes import SCHEMES
from p3s.types import Transition
from tests.helpers import leaves
from tests.helpers_losses import SPECS, random_batch

NO, YES = False, True
SEED = 3


@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ((YES,), (YES,)),
        ((NO, NO, NO), (NO,)),
        ((NO, YES), (NO, YES)),
        ((NO, YES, NO, YES), (NO, YES)),
        ((NO, YES, NO), (NO, YES, NO)),
        ((NO, NO, YES, NO, NO, YES), (NO, NO, YES)),
        ((YES, NO, YES, NO, NO, YES), (YES, NO, YES, NO, NO, YES)),
        ((YES,) * 16, (YES,)),
    ],
)
def test_repeated_unit(pattern, unit):
    assert repeated_unit(pattern) == unit


def batches(spec, scheme, count: int) -> list[Batches]:
    """Random minibatches for this many updates."""
    found = []
    for update in range(count):
        rows = [pack(spec, random_batch(spec, 10 * update + i)) for i in range(scheme.num_trained)]
        found.append(Batches(np.stack(rows), None))
    return found


def unpack(spec, rows) -> Transition:
    return unpack_transitions(spec, rows)


def copied(state):
    """A stretch overwrites what it is given."""
    return jax.tree.map(jnp.copy, state)


@pytest.mark.parametrize(
    ("scheme", "algorithm", "pattern"),
    [
        ("p3s", "td3", (NO, YES, NO, YES)),
        pytest.param("p3s", "td3", (NO, YES, NO), marks=pytest.mark.slow),
        pytest.param("sharing", "sac", (YES, YES, YES), marks=pytest.mark.slow),
        ("pbt", "dqn", (YES, YES)),
    ],
)
class TestStretch:
    def made(self, scheme, algorithm):
        algorithm = ALGORITHMS[algorithm](hidden_sizes=(8,), batch_size=7)
        perturbed = {"perturbed": ("learning_rate",)} if scheme == "pbt" else {}
        made = SCHEMES[scheme](algorithm=algorithm, num_learners=2, **perturbed)
        spec = SPECS[algorithm.actions]
        return made, spec, Program(made, spec, SEED, unpack)

    def test_equals_the_updates_one_by_one_to_the_bit(self, scheme, algorithm, pattern):
        made, spec, program = self.made(scheme, algorithm)
        given, start = batches(spec, made, len(pattern)), program.start()
        together, metrics = program.learn(copied(start), given, 5, pattern)
        state, each = copied(start), []
        for index, with_policy in enumerate(pattern):
            state, found = program.learn(state, given[index : index + 1], 5 + index, (with_policy,))
            each.append(np.asarray(found[0][0]))
        assert all(map(np.array_equal, leaves(together), leaves(state)))
        assert not all(map(np.array_equal, leaves(together), leaves(start)))
        unit = repeated_unit(pattern)
        assert len(metrics) == len(program.metric_names(pattern)) == len(unit)
        for index, values in enumerate(each):
            repeat, place = divmod(index, len(unit))
            assert np.array_equal(metrics[place][repeat], values)
            assert len(program.metric_names(pattern)[place]) == len(values)

    def test_numbers_of_the_updates_count(self, scheme, algorithm, pattern):
        """What is random in an update follows from its number."""
        made, spec, program = self.made(scheme, algorithm)
        given, start = batches(spec, made, len(pattern)), program.start()
        first, other = (program.learn(copied(start), given, number, pattern)[0]
                        for number in (5, 6))  # fmt: skip
        random = algorithm != "dqn"  # which draws nothing when it learns
        assert all(map(np.array_equal, leaves(first), leaves(other))) is not random


def test_what_a_stretch_leaves_alone_bypasses_it():
    """A value update returns the policies and the guide as the same arrays, not as copies."""
    made = SCHEMES["p3s"](algorithm=ALGORITHMS["td3"](hidden_sizes=(8,)), num_learners=2)
    spec = SPECS["continuous"]
    program = Program(made, spec, SEED, unpack)
    for pattern, moves in (((NO, NO), False), ((NO, YES), True)):
        state = program.start()
        policies, guide = jax.tree.leaves(state.learners.policy), jax.tree.leaves(state.guide)
        after, _ = program.learn(state, batches(spec, made, 2), 1, pattern)
        after_policies = jax.tree.leaves(after.learners.policy)
        same = {a is b for a, b in zip(policies, after_policies, strict=True)}
        assert same == {not moves}
        assert all(a is b for a, b in zip(guide, jax.tree.leaves(after.guide), strict=True))
