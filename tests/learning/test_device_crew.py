"""Stretches of training as one program: the same training as step by step, whatever the stops."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax import monitoring

from p3s.envs import make_env
from p3s.envs.on_host import OnHost
from p3s.errors import TrainingStopped, UserError
from p3s.experience.rows import fields as fields_of
from p3s.learning.device_crew import DeviceCrew, why_step_by_step
from p3s.learning.metrics import MetricsWindow
from p3s.learning.stretch import DeviceStretch, stretch_of, unit_of_updates
from p3s.train import Training
from p3s.types import EnvSpec
from tests.functional_worlds import ThreeEnds, point_mass, switch
from tests.helpers import assert_same_bits, assert_same_state, small_config, state_of

make_mass, make_switch = partial(make_env, point_mass), partial(make_env, switch)


def training_of(make: Any = make_mass, scheme: str = "p3s", **fields: Any) -> Training:
    """A small run; its replay is on the device unless the fields say otherwise."""
    # 770 is no multiple of four copies: rows of a step lie on both sides of the ring's end.
    given = {"steps": 900, "evaluation_period": 0, "algorithm": "td3", "buffer_size": 770}
    given |= fields
    config = small_config("CartPole-v1", scheme, **given)
    return Training(dataclasses.replace(config, env=None), make)


def step_by_step(make: Any = make_mass, **fields: Any) -> Training:
    training = training_of(make, replay_device="host", **fields)
    assert not isinstance(training.crew, DeviceCrew)
    return training


def in_stretches(make: Any = make_mass, **fields: Any) -> Training:
    training = training_of(make, **fields)
    assert isinstance(training.crew, DeviceCrew)
    return training


def continued(training: Training, other: Training) -> Training:
    """The other, put where this one is."""
    ours, theirs = training.experience.ring, other.experience.ring
    theirs.num_added = ours.num_added
    theirs.load(0, ours.rows[: ours.size].tobytes())
    other.resume(training.snapshot())
    return other


MORE: dict[str, dict[str, Any]] = {
    "two updates in each step": {"updates_per_step": 2},
    "noise on all copies": {"envs_per_learner": 3, "algorithm": "sac"},
    "policy every third update": {"algorithm": "crossq", "updates_per_step": 4},
    "few updates": {"updates_per_step": 0.25, "own_share": 0.5, "buffer_size": 77},
    "guided by snapshots": {"guide_source": "snapshot"},
    "one learner": {"scheme": "distributed", "envs_per_learner": 4},
    "population-based": {"scheme": "pbt"},
}


class TestSameTraining:
    def test_as_step_by_step(self):
        """To the bit: learners, copies, replay, returns, metrics, reviews."""
        ours, theirs = in_stretches(), step_by_step()
        for training in (ours, theirs):
            training.run(613)  # in mid-episode, between reviews
        assert ours.total_steps == 616
        assert_same_bits(ours, theirs)
        assert ours.last_review == theirs.last_review != {}
        assert ours.crew.stretch.num_compiled == 1
        continued(theirs, other := in_stretches())
        for training in (ours, theirs, other):
            training.run(900)
        assert_same_bits(ours, theirs)
        assert_same_bits(ours, other)

    @pytest.mark.parametrize(
        ("updates", "period", "unit"),
        [
            (4, 2, (False, True)),
            (1, 2, (None,)),
            (0.5, 1, (True,)),
            (4, 3, (None,)),
            (0.5, 2, (None,)),
        ],
    )
    def test_updates_that_every_step_repeats_have_no_condition(self, updates, period, unit):
        fields = {"updates_per_step": updates, "policy_period": period}
        scheme = small_config("CartPole-v1", algorithm="td3", **fields).scheme
        assert unit_of_updates(scheme) == unit

    def test_discrete_actions_in_several_copies(self):
        about = {"make": make_switch, "algorithm": "dqn", "envs_per_learner": 2}
        about["buffer_size"] = 400
        ours, theirs = in_stretches(**about), step_by_step(**about)
        for training in (ours, theirs):
            training.run(600)
        assert_same_bits(ours, theirs)

    @pytest.mark.slow
    @pytest.mark.parametrize("case", MORE)
    def test_of_other_methods(self, case: str):
        ours, theirs = in_stretches(**MORE[case]), step_by_step(**MORE[case])
        for training in (ours, theirs):
            training.run(900)
        assert_same_state(state_of(ours), state_of(theirs))


class TestStops:
    def test_they_move_no_bits_and_one_program_is_compiled(self):
        uninterrupted, listening, stopped = (in_stretches() for _ in range(3))
        heard = []
        uninterrupted.run(900)
        listening.run(900, callback=lambda now: heard.append(now.total_steps))
        stopped.run(331)
        assert stopped.total_steps == 332
        resumed = continued(stopped, in_stretches())
        resumed.run(900)
        assert heard == list(range(4, 901, 4))
        assert_same_bits(uninterrupted, listening)
        assert_same_bits(uninterrupted, resumed)
        assert uninterrupted.crew.stretch.num_compiled == 1

    def test_nothing_is_traced_a_second_time(self, monkeypatch):
        """By stretches, reviews, evaluations and metrics, before and after a resume."""
        stages, run = [], DeviceStretch._run

        def traced(*arguments: Any) -> Any:
            stages.append(training.crew.before_learning)
            return run(*arguments)

        monkeypatch.setattr(DeviceStretch, "_run", traced)
        stretch_of.cache_clear()
        training = in_stretches(evaluation_period=200)
        with Traces() as first:
            training.run(600)
        with Traces() as later:
            training.run(1000)
        assert first.functions
        assert later.functions == []
        resumed = continued(training, in_stretches(evaluation_period=200))
        with Traces() as later:
            resumed.run(1400)
        assert later.functions == []
        assert [row["step"] for row in resumed.evaluated] == [1200, 1400]
        # The bar tells of it, though the host counts the stretch that waits for its program.
        assert stages == ["compiling"]
        assert training.crew.before_learning == ""
        assert in_stretches(evaluation_period=200).crew.before_learning == "collecting"

    def test_another_seed_is_another_training(self):
        ours, theirs = state_of(_ran(100)), state_of(_ran(100, seed=1))
        for name in ("ring/rows", "environments/observations", "environments/leaf_0"):
            assert not np.array_equal(ours[name], theirs[name]), name


class Traces:
    """The functions that are traced within its context."""

    def __enter__(self) -> Traces:
        self.functions = []
        monitoring.register_event_duration_secs_listener(self._hear)
        return self

    def __exit__(self, *error: Any) -> None:
        monitoring.unregister_event_duration_listener(self._hear)

    def _hear(self, event: str, seconds: float, **about: Any) -> None:
        if event.endswith("jaxpr_trace_duration"):
            self.functions.append(about["fun_name"])


def _ran(steps: int, **fields: Any) -> Training:
    training = in_stretches(**fields)
    training.run(steps)
    return training


class TestReplay:
    def test_a_truncated_transition_bootstraps_from_its_true_final_observation(self):
        """Whether a limit of p3s or of the environment ended it."""
        env = ThreeEnds()
        training = in_stretches(lambda: make_env(lambda: OnHost(env)), initial_steps=80)
        training.run(240)
        ring = training.experience.ring
        rows = fields_of(ring.rows[: ring.size], training.spec)
        seen, then = rows["observation"], rows["next_observation"]
        assert np.array_equal(
            then - seen, np.tile([1, 0], (len(seen), 1))
        )  # of the same episode, one step later
        for way, last in enumerate((4, 3, 3)):
            own = seen[:, 1] == way
            ends = then[own, 0] == last
            assert own.sum() > 9
            assert then[own, 0].max() == last
            assert (rows["discount"][own] == np.where(ends & (way == 1), 0, 1)).all()

    def test_one_that_does_not_fit(self):
        with pytest.raises(UserError, match=r"GB, but .* GB are free on the device: --buf"):
            training_of(buffer_size=10**13, replay_device="device")

    def test_the_line_before_the_start_says_what_it_takes(self):
        assert in_stretches().experience.describe() == "replay: 770 transitions, 0 MB on the cpu"
        large = training_of(buffer_size=100_000_000)
        assert not isinstance(large.crew, DeviceCrew)
        assert "up to 2,800 MB" in large.experience.describe()


class TestTrouble:
    def test_a_number_that_is_not_finite_ends_the_run_at_its_step(self):
        training = _ran(120)
        environments = training.crew.environments
        state = environments.now.state
        broken = {**state, "at": state["at"].at[2, 1].set(np.inf)}
        environments.now = environments.now._replace(state=broken)
        message = "at total step 124: the observation of learner 2's environment is not finite"
        with pytest.raises(TrainingStopped, match=message):
            training.run(200)

    def test_a_metric_that_is_not_finite_ends_it_too(self):
        training = _ran(120)
        learners = training.crew.updater.state.learners
        broken = jax.tree.map(lambda leaf: leaf * np.nan, learners.value)
        state = training.crew.updater.state
        training.crew.updater.state = state._replace(learners=learners._replace(value=broken))
        message = "at total step 124: the policy_loss of learner 0 is nan"
        with pytest.raises(TrainingStopped, match=message):
            training.run(200)


class TestChoice:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"n_step": 3}, "that does not go with n_step"),
            ({"on_divergence": "replace"}, "that does not go with on_divergence"),
            ({"credit": "ircr"}, "that does not go with credit"),
            ({"normalize_observations": True}, "that does not go with normalize_observations"),
            ({"buffer_size": 100_000_000}, "its replay takes 2.8 GB"),
            ({"scheme": "cem"}, "scheme cem plays whole episodes"),
            ({"scheme": "rollout", "algorithm": "ppo"}, "ppo learns from its latest steps only"),
        ],
    )
    def test_what_trains_step_by_step(self, fields: dict, reason: str):
        config = small_config("CartPole-v1", **{"algorithm": "td3", **fields})
        assert reason in (why_step_by_step(config, EnvSpec.flat(2, 1)) or "")

    def test_it_says_so_once(self, capsys):
        assert not isinstance(training_of(n_step=3).crew, DeviceCrew)
        assert capsys.readouterr().err.count("this run trains step by step") == 1

    def test_on_the_host_if_asked_for(self, capsys):
        step_by_step()
        assert capsys.readouterr().err == ""

    def test_a_replay_on_the_device_that_cannot_be(self):
        with pytest.raises(UserError, match="cannot be device in this run: its environment is not"):
            training_of(partial(make_env, "Pendulum-v1"), replay_device="device")
        with pytest.raises(UserError, match=r"cannot be device in this run: .* n_step"):
            training_of(n_step=3, replay_device="device")


class TestShards:
    def test_copies_play_the_same_in_shards(self):
        """Each shard steps its own copies as one program."""
        about = {"envs_per_learner": 2, "initial_steps": 99}
        split = training_of(shards=2, exchange_period=5, **about)
        whole = in_stretches(**about)
        for training in (split, whole):
            training.run(240)
        ours, theirs = state_of(split), state_of(whole)
        for name in ("environments/lengths", "environments/num_episodes", "ring/num_added"):
            assert np.array_equal(ours[name], theirs[name]), name
        for name in ("environments/observations", "environments/totals", "environments/leaf_0"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6)

    @pytest.mark.slow
    def test_killed_and_resumed_in_shards(self):
        about = {"shards": 2, "exchange_period": 5, "envs_per_learner": 8, "buffer_size": 9000}
        uninterrupted, stopped = (training_of(steps=3000, **about) for _ in range(2))
        uninterrupted.run(3000)
        stopped.run(1700)
        resumed = continued(stopped, training_of(steps=3000, **about))
        resumed.run(3000)
        assert_same_bits(uninterrupted, resumed)

    def test_the_replay_is_on_the_host(self):
        with pytest.raises(UserError, match="replay_device is for runs without shards"):
            training_of(shards=2, exchange_period=5, replay_device="device")


def test_a_series_of_metrics_counts_as_one_by_one():
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    together, one_by_one = MetricsWindow(), MetricsWindow()
    for part in np.split(values, [7, 8]):
        together.add_series("loss", part)
    for each in values:
        one_by_one.add(("loss",), each[None])
    assert together.snapshot() == one_by_one.snapshot()
