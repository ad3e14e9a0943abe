"""The loop: when learning and reviews begin, what the chief counts, what stops a run."""

from __future__ import annotations

import copy
import json

import jax
import numpy as np
import pytest

from p3s.envs import Adapter
from p3s.errors import TrainingStopped, UserError
from p3s.runs import opening
from p3s.schemes import SCHEMES
from p3s.train import Training
from tests.helpers import Counter, assert_same_bits, small_config, small_training

PARTS = {
    "counters", "environments", "experience", "normalizer", "rhythm", "state", "metrics",
    "returns", "best_policy", "records",
}  # fmt: skip


class TestBeginning:
    """Actions are random while t < T_initial (Appendix H)."""

    def test_updates_and_policy_actions_begin_with_step_t_initial(self):
        """Equal policies without noise act alike in equal states; random actions differ."""
        assert self.begin(initial_steps=30) == (30, 29)

    @pytest.mark.parametrize("random_steps", [0, 20, 35])
    def test_the_random_phase_may_have_a_length_of_its_own(self, random_steps):
        assert self.begin(initial_steps=30, random_steps=random_steps) == (30, random_steps)

    def begin(self, **fields) -> tuple[int, int]:
        """Of a run of 40 steps: the step of the first update, and how many steps were random."""
        # Steps so small that the policies stay alike.
        quiet = {"exploration_noise": 0.0, "learning_rate": 1e-9, "evaluation_period": 0}
        config = small_config(num_learners=2, **quiet, **fields)
        made = []

        def make() -> Adapter:
            made.append(Counter(1000))
            return Adapter(made[-1])

        training, updates = Training(config, make), []
        training.run(2 * 40, callback=lambda now: updates.append(now.counters.updates))
        training.close()
        ours, theirs = (env.actions for env in made if len(env.actions) == 40)
        alike = [
            np.allclose(one, other, atol=1e-6) for one, other in zip(ours, theirs, strict=True)
        ]
        assert alike == sorted(alike)
        return 1 + updates.count(0), alike.count(False)

    def test_first_review_is_at_t_initial_when_that_is_a_multiple_of_m(self):
        fields = {"initial_steps": 50, "review_period": 25, "evaluation_period": 0}
        training = small_training(num_learners=2, **fields)
        training.run(2 * 49)
        assert training.last_review == {}
        training.run(2 * 50)
        assert training.last_review["step"] == 2 * 50
        training.close()


class TestRandomEpisodes:
    """Episodes of 10 steps, each with a return of 55, and a chief that looks after each of them."""

    def counted(self, initial_steps: int, skip: bool, **fields) -> list[bool]:
        """At the end of each of the first five episodes: whether the chief knows a return."""
        config = small_config(
            initial_steps=initial_steps, skip_random_episodes=skip, review_period=10,
            recent_episodes=1, num_learners=2, evaluation_period=0, learning_rate=1e-6, **fields,
        )  # fmt: skip
        training = Training(config, lambda: Adapter(Counter(10)))
        returns = []

        def note(now):
            if now.total_steps % 20 == 0:
                returns.append(now.last_review.get("recent_returns", [np.nan])[0])

        training.run(2 * 50, callback=note)
        training.close()
        assert all(value == 55.0 or np.isnan(value) for value in returns)
        return [value == 55.0 for value in returns]

    def test_all_count_unless_told_otherwise(self):
        # The first review is at step 30; the returns before it were kept for it.
        assert self.counted(initial_steps=25, skip=False) == [False, False, True, True, True]

    def test_an_episode_with_a_random_action_in_it_does_not_count(self):
        # Actions are random until step 24: the third episode, steps 21 to 30, has some of them.
        assert self.counted(initial_steps=25, skip=True) == [False, False, False, True, True]

    def test_one_that_began_right_after_the_random_phase_counts(self):
        assert self.counted(initial_steps=21, skip=True) == [False, False, True, True, True]
        assert self.counted(initial_steps=22, skip=True) == [False, False, False, True, True]

    def test_the_random_phase_counts_not_the_first_update(self):
        """The first update is at step 5; the third episode ends with step 30."""
        for random_steps, known in ((20, [False, False, True]), (21, [False, False, False])):
            found = self.counted(initial_steps=5, skip=True, random_steps=random_steps)
            assert found[:3] == known


class TestParts:
    """A run is its parts, and each of them can be snapshotted and resumed."""

    @pytest.mark.parametrize(
        "scheme",
        [
            pytest.param(name, marks=() if name in ("p3s", "erl") else pytest.mark.slow)
            for name in sorted(SCHEMES)
        ],
    )
    def test_a_resumed_run_continues_to_the_bit(self, scheme):
        fields = {"scheme": scheme, "evaluation_period": 0, "buffer_size": 300}
        if scheme == "rollout":
            del fields["buffer_size"]
        first, again = (small_training(steps=600, **fields) for _ in range(2))
        first.run(600, callback=lambda now: now.total_steps < 350)
        snapshot = copy.deepcopy(first.snapshot())
        assert snapshot.keys() == PARTS
        if first.experience.ring is not None:
            again.experience.ring.rows[:] = first.experience.ring.rows
            again.experience.ring.num_added = first.experience.ring.num_added
        again.resume(snapshot)
        assert_same_bits(again, first)
        for training in (first, again):
            training.run(600)
            training.close()
        assert first.counters.updates > 0
        assert_same_bits(again, first)

    def test_a_snapshot_is_arrays_and_json(self):
        training = small_training(normalize_observations=True)
        training.run(200)
        for part, values in training.snapshot().items():
            for name, value in values.items():
                if not isinstance(value, np.ndarray):
                    assert json.loads(json.dumps(value)) == value, f"{part}/{name}"
        training.close()

    def test_a_run_without_a_folder_writes_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        training = small_training(steps=400, checkpoint_period=100)
        training.run(400)
        training.checkpoint()
        assert training.folder.snapshot() == {}
        assert training.evaluated[-1]["step"] == 400
        assert training.last_review["step"] == 400
        training.close()
        assert not list(tmp_path.rglob("*"))


class TestTrouble:
    def test_not_a_number_in_a_loss_stops_the_run(self, tmp_path):
        path = tmp_path / "run"
        config = small_config(steps=800, checkpoint_period=100, learning_rate=1e30)
        training = opening.begin(config, path)
        with pytest.raises(TrainingStopped, match=r"at total step \d+: the \w+ of learner \d is"):
            training.run(800)
        training.close()

    def test_no_environment_gets_an_action_that_is_not_a_number(self):
        training = small_training(steps=800, learning_rate=1e30)
        seen = []
        for env in training.crew.environments.envs:
            step = env.step
            env.step = lambda action, step=step: seen.append(action) or step(action)
        with pytest.raises(TrainingStopped):
            training.run(800)
        training.close()
        assert len(seen) > 20
        assert np.isfinite(seen).all()

    def test_an_evaluation_stops_at_an_action_that_is_not_a_number(self):
        training = small_training(steps=800)
        training.run(100)
        training.crew.updater.state = jax.tree.map(
            lambda x: jax.numpy.full_like(x, np.nan), training.crew.updater.state
        )
        with pytest.raises(UserError, match="the policy of learner 0 produced non-finite actions"):
            training.evaluate()
        training.close()

    def test_environment_error_in_an_evaluation_stops_the_run(self):
        training = small_training(steps=800)
        training.run(100)
        training.evaluate()

        def fail(action):
            raise ValueError("the battery is empty")

        training.evaluations.evaluator.player.envs[1].step = fail
        with pytest.raises(
            TrainingStopped, match=r"at total step 200: .*learner 0 raised at a step of an evalua"
        ):
            training.run(800)
        training.close()

    def test_an_evaluation_that_does_not_end_is_given_up(self, monkeypatch):
        monkeypatch.setattr("p3s.envs.episodes.LONGEST_EPISODE", 30)
        training = small_training("Pendulum-v1", steps=800)
        with pytest.raises(TrainingStopped, match="not ended after 30 steps: give the env"):
            training.run(800)
        training.close()

    def test_environment_error_keeps_the_last_checkpoint(self, tmp_path):
        config = small_config(steps=800, checkpoint_period=100)
        training = opening.begin(config, tmp_path / "run")
        training.run(240)

        def fail(action):
            raise ValueError("the battery is empty")

        training.crew.environments.envs[2].env.step = fail
        with pytest.raises(
            TrainingStopped, match=r"at total step 240: .*learner 2 raised .*battery is empty"
        ):
            training.run(800)
        training.close()
        reopened, notes = opening.reopen(tmp_path / "run")
        reopened.close()
        assert (reopened.total_steps, notes) == (240, [])
