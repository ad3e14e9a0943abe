"""K environment copies for each learner."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from p3s import keys
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.experience.returns import make_returns
from p3s.learning.learners import act
from p3s.types import EnvSpec, Episode
from tests.helpers import SMALL, assert_same_state, record, resume, run, state_of, trained


def test_a_learner_acts_in_its_copies_with_noise_of_their_own():
    scheme = resolve(None, "sharing", "td3", num_learners=2, envs_per_learner=3, **SMALL).scheme
    policies = scheme.policies(scheme.init(jax.random.key(1), EnvSpec.flat(3, 2)))
    seen = np.ones((6, 3), np.float32)
    key, step = keys.key(0, "act"), np.int32(9)
    indices = np.arange(2)
    actions = np.asarray(scheme.act((policies, indices), seen, key, step))
    assert actions.shape == (6, 2)
    assert len(np.unique(actions, axis=0)) == 6
    # The same copies one by one: copy k of learner i is number i * K + k.
    for copy in range(6):
        own = jax.tree.map(lambda leaf, i=copy // 3: leaf[i : i + 1], policies)
        alone = act(scheme.algorithm, own, seen[:1], key, np.array([copy]), step, explore=True)
        np.testing.assert_allclose(alone[0], actions[copy], rtol=1e-5, atol=1e-6)


def test_returns_of_all_copies_count_for_their_learner():
    returns = make_returns(resolve(None, num_learners=2, envs_per_learner=3).scheme)
    for copy in range(6):
        returns.add(Episode(copy, float(copy), 10))
    known = [row[~np.isnan(row)].tolist() for row in returns.values]
    assert known == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_steps_and_updates_are_counted_over_all_copies():
    training = trained(180, num_learners=2, envs_per_learner=3, updates_per_step="N")
    assert training.total_steps == 180
    assert training.counters.time_step == 30
    first = training.scheme.initial_steps
    assert training.counters.updates == 6 * (30 - first + 1)
    assert training.experience.ring.num_added == 180


def test_distributed_is_one_learner_with_copies():
    fields = {"envs_per_learner": 4, "updates_per_step": 2, "learners_start": "identical"}
    runs = (trained(160, scheme=name, **fields) for name in ("distributed", "single"))
    one, other = (state_of(run) for run in runs)
    for state in (one, other):
        del state["best_policy/file"]  # it names the scheme
    assert_same_state(one, other)


def test_two_shards_are_the_unsplit_run():
    fields = {"num_learners": 2, "envs_per_learner": 2, "exchange_period": 1}
    whole, split = (trained(160, shards=shards, **fields) for shards in (1, 2))
    rows = [run.experience.ring.rows[:150] for run in (whole, split)]
    np.testing.assert_allclose(*rows, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shards", [None, 2])
def test_a_resumed_run_goes_on_to_the_bit(shards, tmp_path):
    fields = {"num_learners": 2, "envs_per_learner": 2, "shards": shards, "exchange_period": 5}
    for path, until in ((tmp_path / "whole", None), (tmp_path / "cut", 300)):
        run(path, until, **fields)
    resume(tmp_path / "cut")
    assert record(tmp_path / "cut") == record(tmp_path / "whole")


def test_what_needs_one_copy_is_refused():
    for fields in ({"guide_source": "snapshot"}, {"own_share": 0.5}):
        with pytest.raises(UserError, match=r"envs_per_learner|environment copies"):
            resolve("Pendulum-v1", envs_per_learner=2, **fields).check()
