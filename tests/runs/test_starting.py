"""Policies that a run starts from: whose place they take, what they must fit, and clones."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest

from p3s import Population
from p3s.errors import UserError
from p3s.experience.recorded import Recorded
from p3s.policies.policy import Policy
from p3s.runs import opening
from p3s.runs.transitions import write_transitions
from p3s.schemes import SCHEMES
from p3s.schemes.base import EpisodeScheme
from p3s.trees import pick
from tests.helpers import SMALL, call, leaves, record, resume, run, small_config

ENV = "Pendulum-v1"
FIELDS = {**SMALL, "evaluation_period": 0}
SHAPE = {"hidden_sizes": (16,), "evaluation_period": 0, "preset": "paper"}


@pytest.fixture(scope="module")
def policy(population, tmp_path_factory) -> str:
    """A trained policy of TD3, 16 units."""
    file = tmp_path_factory.mktemp("policy") / "policy.safetensors"
    population.policy.save(file)
    return str(file)


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory) -> str:
    """Half of the first number that is observed as the action, and its opposite of the second."""
    rng = np.random.default_rng(0)
    seen = rng.uniform(-1, 1, (500, 3)).astype(np.float32)
    file = tmp_path_factory.mktemp("data") / "demonstrations.npz"
    flags = np.zeros(500, bool)
    actions = seen[:, :1] / 2 - seen[:, 1:2]
    write_transitions(file, Recorded(seen, actions, seen[:, 0], seen, flags, flags))
    return str(file)


def same(ours, theirs) -> bool:
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def state_of(population: Population):
    return population.training.crew.updater.state


def policies_of(population: Population) -> list:
    return [policy.params for policy in population.policies]


class TestWhoStarts:
    def test_all_learners_unless_told_otherwise(self, policy):
        population = Population(ENV, start_from=policy, **FIELDS)
        given = Policy.load(policy).params
        assert all(same(own, given) for own in policies_of(population))
        state = state_of(population)
        for part in (state.old_policies, state.learners.targets["policy"]):
            assert all(same(pick(part, index), given) for index in range(4))
        assert same(state.guide, given)
        assert same(state.learners.value, state_of(Population(ENV, **FIELDS)).learners.value)
        population.learn(100, progress_bar=False)
        assert not same(policies_of(population)[0], given)

    def test_some_learners(self, policy):
        fields = {**FIELDS, "learners_start": "independent"}
        without = Population(ENV, **fields)
        population = Population(ENV, start_from=policy, start_learners=(1, 3), **fields)
        given, before = Policy.load(policy).params, policies_of(without)
        own = policies_of(population)
        assert [same(each, given) for each in own] == [False, True, False, True]
        assert same(own[0], before[0])
        assert same(own[2], before[2])
        assert same(state_of(population).guide, state_of(without).guide)

    def test_snapshots_that_play(self, policy):
        fields = {**FIELDS, "guide_source": "snapshot", "start_from": policy}
        population = Population(ENV, start_learners=(0,), **fields)
        given = Policy.load(policy).params
        for part in (state_of(population).actors, state_of(population).played):
            assert same(pick(part, 0), given)
            assert not same(pick(part, 1), given)
        population.learn(100, progress_bar=False)

    @pytest.mark.slow
    @pytest.mark.parametrize("scheme", [name for name in SCHEMES if name not in ("p3s", "rollout")])
    def test_every_scheme_of_learners(self, scheme, policy):
        config = small_config(ENV, scheme, start_from=policy, evaluation_period=0)
        if issubclass(SCHEMES[scheme], EpisodeScheme):
            with pytest.raises(UserError, match=f"scheme {scheme} evolves policies"):
                config.check()
            return
        training = opening.begun(config, opening.env_maker(config))
        given = Policy.load(policy).params
        assert all(same(each, given) for each in training.crew.champions())
        if scheme == "center":
            training.run(200)

    def test_a_run_folder_gives_its_best(self, population, tmp_path):
        run(tmp_path / "first", until=450, env=ENV)
        best = Policy.load(tmp_path / "first" / "policy-best.safetensors").params
        started = Population(ENV, start_from=str(tmp_path / "first"), **FIELDS)
        assert same(started.policies[2].params, best)

    @pytest.mark.parametrize(
        ("scheme", "algorithm", "env"),
        [
            ("p3s", "dqn", "CartPole-v1"),
            pytest.param("rollout", "ppo", ENV, marks=pytest.mark.slow),
            pytest.param("p3s", "crossq", ENV, marks=pytest.mark.slow),
            pytest.param("p3s", "sac", ENV, marks=pytest.mark.slow),
        ],
    )
    def test_other_algorithms(self, scheme, algorithm, env, tmp_path):
        fields = {"algorithm": algorithm, "hidden_sizes": (16,), "evaluation_period": 0}
        if scheme == "rollout":
            fields["normalize_observations"] = False
        else:
            fields = {**FIELDS, **fields}
        first = Population(env, scheme, seed=1, **fields)
        first.policy.save(tmp_path / "policy.safetensors")
        started = Population(env, scheme, start_from=str(tmp_path / "policy.safetensors"), **fields)
        assert same(started.policy.params, first.policy.params)
        observation = np.zeros((5, *first.policy.spec.observation.shape), np.float32)
        ours, theirs = (each.predict(observation)[0] for each in (started, first))
        assert np.array_equal(ours, theirs)
        started.learn(60, progress_bar=False)


class TestRuns:
    def test_a_resumed_one_needs_the_file_no_more(self, policy, tmp_path):
        file = tmp_path / "once.safetensors"
        file.write_bytes(Policy.load(policy).to_bytes())
        fields = {"env": ENV, "start_from": str(file), "start_learners": (0,)}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=330, **fields)
        file.unlink()
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    def test_it_is_the_same_as_setting_parameters(self, policy):
        given = Population(ENV, start_from=policy, **FIELDS)
        by_hand = Population(ENV, **FIELDS)
        by_hand.set_parameters(given.get_parameters())
        for population in (given, by_hand):
            population.learn(100, progress_bar=False)
        assert same(policies_of(given), policies_of(by_hand))


class TestClones:
    def test_they_do_what_was_done(self, demonstrations, capsys):
        population = Population(
            ENV, data=demonstrations, cloning_updates=1500, **{**FIELDS, "learning_rate": 3e-3}
        )
        assert "note: 1,500 cloning updates: half the squared error" in capsys.readouterr().err
        seen = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)
        wanted = seen[:, :1] / 2 - seen[:, 1:2]
        for policy in population.policies:
            assert np.abs(policy.predict(seen)[0] - wanted).mean() < 0.1
        optimizers = jax.tree.leaves(state_of(population).learners.optimizers)
        assert all((np.asarray(leaf) == 0).all() for leaf in optimizers)

    def test_they_begin_as_learner_0_or_as_the_given_policy(self, demonstrations, policy):
        fields = {**FIELDS, "data": demonstrations, "learners_start": "independent"}
        one = Population(ENV, cloning_updates=1, start_learners=(2,), **fields)
        first, own = policies_of(Population(ENV, **fields))[0], policies_of(one)
        step = max(np.abs(a - b).max() for a, b in zip(leaves(first), leaves(own[2]), strict=True))
        assert 0 < step < 2e-3
        assert same(own[0], first)
        given = Population(ENV, cloning_updates=1, start_from=policy, **fields)
        pairs = zip(leaves(Policy.load(policy).params), leaves(policies_of(given)[3]), strict=True)
        assert 0 < max(np.abs(a - b).max() for a, b in pairs) < 2e-3

    def test_the_same_seed_clones_the_same(self, demonstrations):
        fields = {**FIELDS, "data": demonstrations, "cloning_updates": 40}
        ours, again = (policies_of(Population(ENV, **fields)) for _ in range(2))
        other = policies_of(Population(ENV, seed=3, **fields))
        assert same(ours, again)
        assert not same(ours, other)

    @pytest.mark.slow
    @pytest.mark.parametrize("algorithm", ["sac", "tqc", "sql", "sac_2018"])
    def test_other_algorithms(self, algorithm, demonstrations, capsys):
        fields = {**FIELDS, "algorithm": algorithm, "learning_rate": 3e-3}
        Population(ENV, data=demonstrations, cloning_updates=500, **fields)
        words = capsys.readouterr().err.split()
        assert float(words[-1]) < float(words[-3]) / 3


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"algorithm": "sac"}, "is a policy of td3, and this run learns with sac"),
            ({"hidden_sizes": (8, 8)}, "has hidden_sizes 16, and this run 8-8"),
            ({"activation": "tanh"}, "has activation relu, and this run tanh"),
            ({"env": "InvertedPendulum-v5"}, "is for float32 observations of 3 and 1 action dim"),
            ({"scheme": "cem"}, "start_from is for learners, and scheme cem evolves policies"),
            ({"normalize_observations": True}, "leave normalize_observations off"),
            ({"start_learners": (4,)}, "start_learners are counted from 0 to 3"),
            ({"start_learners": (-1,)}, "start_learners must be at least 0"),
            ({"start_from": "nothing"}, "there is no policy file nothing"),
            ({"start_from": None, "start_learners": (0,)}, "start_learners need start_from or"),
        ],
    )
    def test_in_one_line(self, fields, message, policy):
        with pytest.raises(UserError, match=message) as caught:
            Population(**{"env": ENV, "algorithm": "td3", "start_from": policy, **SHAPE, **fields})
        assert "\n" not in str(caught.value)

    def test_another_range_of_actions(self, policy):
        def make():
            env = gymnasium.make(ENV)
            return gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))

        with pytest.raises(UserError, match=r"has action_low \[-2.0\], and this environment \[-1"):
            Population(make, start_from=policy, **FIELDS)

    def test_normalized_observations(self, tmp_path):
        fields = {**FIELDS, "normalize_observations": True}
        Population(ENV, **fields).policy.save(tmp_path / "policy.safetensors")
        with pytest.raises(UserError, match="takes normalized observations, whose statistics"):
            Population(ENV, start_from=str(tmp_path / "policy.safetensors"), **FIELDS)

    def test_what_cannot_be_cloned(self, demonstrations, tmp_path):
        fields = {"cloning_updates": 5, "data": demonstrations}
        with pytest.raises(UserError, match=r"crossq cannot be fitted.*running statistics"):
            Population(ENV, algorithm="crossq", **fields)
        env, file = "CartPole-v1", tmp_path / "x.npz"
        first = Population(env, **{**SMALL, "evaluation_period": 0, "initial_steps": 100})
        first.learn(40, progress_bar=False).save_replay(file)
        with pytest.raises(UserError, match=r"dqn cannot be fitted to actions: .*discrete"):
            Population(env, cloning_updates=5, data=str(file))

    def test_from_the_command_line_nothing_is_written(self, policy, tmp_path, capsys):
        out = tmp_path / "run"
        words = [
            "--start-from",
            policy,
            "--hidden-sizes",
            "8",
            "--out",
            out,
            "--start-learners",
            "0",
        ]
        code, _, errors = call(capsys, "train", ENV, "--algorithm", "td3", *words)
        assert (code, errors.count("\n")) == (2, 1)
        assert "has hidden_sizes 16, and this run 8" in errors
        assert not out.exists()
