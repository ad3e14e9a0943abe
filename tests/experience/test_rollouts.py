"""Rollouts: rows as the policy saw them, and what a resume does to an episode."""

from __future__ import annotations

import numpy as np

from p3s.experience.normalization import NoNormalizer, Scaling, normalize
from p3s.experience.rollouts import RolloutBuffer
from p3s.population import Population
from p3s.types import EnvSpec, Transition
from tests.helpers import Unpicklable


def test_rows_are_stored_as_the_policy_saw_them():
    spec, normalizer = EnvSpec.flat(2, 1), NoNormalizer()
    kept = RolloutBuffer(spec, 4, normalizer)
    draw = np.random.default_rng(0)
    steps = Transition(
        draw.normal(size=(5, 2)), draw.normal(size=(5, 1)), draw.normal(size=5),
        np.array([1, 0, 1, 1, 1]), draw.normal(size=(5, 2)),
    )  # fmt: skip
    steps = Transition(*map(np.float32, steps))
    scalings = [Scaling(*draw.normal(size=(2, 2)).astype(np.float32)) for _ in range(5)]
    for index, scaling in enumerate(scalings):
        if index == 3:
            again = RolloutBuffer(spec, 4, normalizer)
            again.resume(kept.snapshot())
            kept = again
        normalizer.scaling = scaling
        step = Transition(*(values[index : index + 1] for values in steps))
        kept.add(step, [0], [0] if index in (1, 2) else [])
    taken = kept.take(1, 1, num_pending=0)
    assert taken.scaling is None
    rollout = kept.unpack(spec, taken.rows[0])
    assert rollout.ended.tolist() == [0, 1, 1, 0, 0, 0, 0, 0]
    assert rollout.present.tolist() == [1] * 5 + [0] * 3
    for index, scaling in enumerate(scalings):
        for name in ("observation", "next_observation"):
            expected = normalize(getattr(steps, name)[index], scaling)
            assert np.array_equal(getattr(rollout.steps, name)[index], expected)
    for name in ("action", "reward", "discount"):
        assert np.array_equal(getattr(rollout.steps, name)[:5], getattr(steps, name))
    # Two observations, action, reward and discount, and the two marks.
    assert kept.snapshot()["rows"].shape == (0, 2 + 2 + 3 + 2)


def test_a_rollout_is_not_taken_before_its_last_step():
    kept = RolloutBuffer(EnvSpec.flat(1, 1), 4, NoNormalizer())
    assert kept.take(1, 1, num_pending=1) is None


def test_a_resume_that_begins_new_episodes_ends_the_one_in_the_rollout(tmp_path):
    fields = {"hidden_sizes": (4,), "rollout_steps": 128, "evaluation_period": 0}
    population = Population(Unpicklable, scheme="rollout", algorithm="ppo", **fields)
    population.learn(5, progress_bar=False)
    population.save(tmp_path / "saved")
    again = Population.load(tmp_path / "saved", env=Unpicklable)
    again.learn(3, progress_bar=False)
    rows = again.training.experience.snapshot()["rows"]
    assert rows[:, -2].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
