"""Rollouts: rows as the policy saw them, and what a resume does to an episode."""

from __future__ import annotations

import jax
import numpy as np

from p3s.experience.normalization import Scaling, normalize
from p3s.experience.rollouts import RolloutRows, unpack_rollout
from p3s.population import Population
from p3s.types import EnvSpec, Transition, pack
from tests.helpers import Unpicklable


def test_rows_are_stored_as_the_policy_saw_them():
    spec = EnvSpec.flat(2, 1)
    rows, kept = np.zeros((5, spec.row_size), np.float32), RolloutRows(spec, padded_to=4)
    draw = np.random.default_rng(0)
    steps = Transition(
        draw.normal(size=(5, 2)), draw.normal(size=(5, 1)), draw.normal(size=5),
        np.array([1, 0, 1, 1, 1]), draw.normal(size=(5, 2)),
    )  # fmt: skip
    pack(spec, jax.tree.map(np.float32, steps), rows)
    scalings = [Scaling(*draw.normal(size=(2, 2)).astype(np.float32)) for _ in range(5)]
    for index, (row, scaling) in enumerate(zip(rows, scalings, strict=True)):
        if index == 3:
            again = RolloutRows(spec, padded_to=4)
            again.resume(kept.snapshot())
            kept = again
        kept.add(row, scaling, ended=index in (1, 2))
    rollout = unpack_rollout(spec, kept.take()[0])
    assert rollout.ended.tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
    assert rollout.present.tolist() == [1] * 5 + [0] * 3
    for index, scaling in enumerate(scalings):
        for name in ("observation", "next_observation"):
            expected = normalize(np.float32(getattr(steps, name)[index]), scaling)
            assert np.array_equal(getattr(rollout.steps, name)[index], expected)
    for name in ("action", "reward", "discount"):
        assert np.array_equal(getattr(rollout.steps, name)[:5], np.float32(getattr(steps, name)))
    assert kept.snapshot()["rows"].shape == (0, spec.row_size + 2)


def test_a_resume_that_begins_new_episodes_ends_the_one_in_the_rollout(tmp_path):
    fields = {"hidden_sizes": (4,), "rollout_steps": 128, "evaluation_period": 0}
    population = Population(Unpicklable, scheme="single", algorithm="ppo", **fields)
    population.learn(5, progress_bar=False)
    population.save(tmp_path / "saved")
    again = Population.load(tmp_path / "saved", env=Unpicklable)
    again.learn(3, progress_bar=False)
    rollout = again.training.experience
    assert rollout is not None
    assert rollout.snapshot()["rows"][:, -2].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
