"""Runs with credit for delayed rewards: the same bits however they are run, and what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from p3s import Population
from p3s.config.run import resolve
from p3s.errors import UserError
from p3s.experience.reward_network import fit, predict
from p3s.runs import opening
from p3s.schemes import SCHEMES
from tests.helpers import (
    assert_same_bits,
    call,
    leaves,
    problem_of,
    record,
    resume,
    run,
    small_config,
    small_training,
    trained,
)
from tests.masked_worlds import Corridor

BOTH = ["rrd", pytest.param("ircr", marks=pytest.mark.slow)]
FIELDS = {"delay": 20, "evaluation_period": 0}
SCHEMES_WITH_BOTH = [
    pytest.param(
        scheme, credit, marks=() if (scheme, credit) == ("cem", "ircr") else pytest.mark.slow
    )
    for scheme in SCHEMES
    for credit in ("ircr", "rrd")
    if scheme != "rollout"
]
IMAGES = "p3s-tests/CreditCatch-v0"
if IMAGES not in gymnasium.registry:
    gymnasium.register(IMAGES, entry_point="tests.probe_worlds:Catch", disable_env_checker=True)


def network_of(training) -> dict[str, np.ndarray]:
    """The reward network of a run."""
    values = training.experience.snapshot()
    return {name: leaf for name, leaf in values.items() if name.startswith("reward_network/")}


@pytest.mark.parametrize("credit", BOTH)
@pytest.mark.parametrize(
    "fields",
    [
        {"updates_per_step": 3, "buffer_size": 300},
        pytest.param(
            {"n_step": 3, "delay": "end", "normalize_observations": True}, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_running_ahead_changes_nothing(credit, fields):
    fields = {**FIELDS, "num_learners": 2, "credit": credit, **fields}
    ours, theirs = (small_training(seed=1, **fields) for _ in range(2))
    theirs.crew.updater._overlap = False
    for training in (ours, theirs):
        training.run(500)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("credit", BOTH)
@pytest.mark.parametrize("delay", [20, pytest.param("end", marks=pytest.mark.slow)])
def test_killed_and_resumed_is_uninterrupted(credit, delay, tmp_path):
    fields = {"delay": delay, "credit": credit, "buffer_size": 350}
    run(tmp_path / "whole", **fields)
    run(tmp_path / "killed", until=330, **fields)
    resume(tmp_path / "killed", until=570)
    resume(tmp_path / "killed")
    assert record(tmp_path / "killed") == record(tmp_path / "whole")


def test_the_reward_network_follows_the_seed_alone():
    first, again, other = (trained(**FIELDS, credit="rrd", seed=seed) for seed in (3, 3, 4))
    ours, same, theirs = (network_of(each) for each in (first, again, other))
    assert len(ours) == 6 + 1 + 2 * 6
    for name, leaf in ours.items():
        assert np.array_equal(leaf, same[name])
        assert leaf.ndim == 0 or not np.array_equal(leaf, theirs[name])
    assert ours["reward_network/optimizer/0/count"] == first.counters.updates


def test_nothing_is_compiled_again_in_the_second_round():
    training = small_training(**FIELDS, credit="rrd")
    training.run(200)
    before = fit._cache_size(), predict._cache_size()
    training.run(400)
    assert (fit._cache_size(), predict._cache_size()) == before


@pytest.mark.parametrize(("scheme", "credit"), SCHEMES_WITH_BOTH)
def test_every_scheme_learns_from_it(scheme, credit):
    """Other rewards are other learners; the returns that the chief sees are the environment's."""
    plain, credited = (
        trained(scheme=scheme, delay=20, credit=name, evaluation_period=0)
        for name in ("none", credit)
    )
    assert credited.counters.updates > 0
    pairs = zip(leaves(plain.crew.updater.state), leaves(credited.crew.updater.state), strict=True)
    assert any(not np.array_equal(ours, theirs) for ours, theirs in pairs)
    assert credited.experience.describe().endswith(f"; credit {credit}")
    returns = credited.returns.values[~np.isnan(credited.returns.values)]
    assert (returns % 1 == 0).all()  # the pendulum earns 1 a step
    assert returns.min() >= 1


@pytest.mark.parametrize("credit", BOTH)
def test_discrete_actions_with_masks(credit):
    population = Population(
        Corridor, algorithm="dqn", delay="end", credit=credit, preset="paper", hidden_sizes=(16,),
        batch_size=8, initial_steps=60, num_learners=2, evaluation_period=0,
    )  # fmt: skip
    population.learn(240, progress_bar=False)
    assert population.training.counters.updates > 0
    assert population.training.config.delay == "end"


def test_images_have_credit_and_no_reward_network(capsys):
    code, _, errors = call(
        capsys, "train", IMAGES, "--algorithm", "dqn", "--credit", "rrd", "--no-report"
    )
    assert code == 2
    assert "has images, and the reward network of credit rrd reads vectors only" in errors
    assert "choose --credit ircr" in errors


@pytest.mark.slow
def test_images_with_ircr():
    training = small_training(
        IMAGES, algorithm="dqn", num_learners=2, delay="end", credit="ircr", evaluation_period=0
    )
    training.run(120)
    assert training.counters.updates > 0


def test_normalized_rewards_of_the_network():
    training = trained(**FIELDS, credit="rrd", normalize_rewards=True)
    assert np.isfinite(training.experience.take(10**6, 4, 0).rows).all()


class TestShards:
    @pytest.mark.parametrize("credit", BOTH)
    def test_one_shard_that_exchanges_every_step_is_a_run_in_one_piece(self, credit, tmp_path):
        fields = {"delay": 20, "credit": credit, "steps": 400, "checkpoint_period": 150}
        sharded = {"shards": 1, "exchange_period": 1}
        for name, more in (("whole", {}), ("sharded", sharded)):
            training = opening.begin(small_config(**fields, **more), tmp_path / name)
            training.run(400)
            training.close()
        assert record(tmp_path / "sharded") == record(tmp_path / "whole")

    @pytest.mark.parametrize("credit", BOTH)
    def test_killed_and_resumed(self, credit, tmp_path):
        fields = {
            "delay": 20, "credit": credit, "shards": 2, "exchange_period": 7, "buffer_size": 350,
        }  # fmt: skip
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=550, **fields)
        training, _ = opening.reopen(tmp_path / "killed")
        assert training.total_steps == 500
        training.run(800)
        if credit == "rrd":  # every replica has the same network
            first, second = training.crew.places.tell_all("snapshot")
            for name, leaf in first["experience"].items():
                np.testing.assert_array_equal(leaf, second["experience"][name], name)
            assert "reward_network/model/params/0/weight" in first["experience"]
        training.close()
        assert record(tmp_path / "killed") == record(tmp_path / "whole")


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (
                ["--scheme", "rollout", "--credit", "rrd"],
                "credit rrd rewards what is in a replay, and ppo keeps none",
            ),
            (
                ["--own-share", "0.5", "--credit", "ircr"],
                "credit ircr draws from the episodes of all learners: leave own_share out",
            ),
            (
                ["--algorithm", "sac", "--normalize-rewards", "--credit", "ircr"],
                "credit ircr scales rewards itself: leave normalize_rewards off "
                "(--no-normalize-rewards)",
            ),
        ],
    )
    def test_in_one_line(self, words, line, capsys):
        code, _, errors = call(capsys, "train", "Pendulum-v1", *words)
        assert code == 2
        assert errors == f"p3s: {line}\n"

    def test_another_word(self):
        with pytest.raises(UserError, match='credit: expected "none" or "ircr" or "rrd"'):
            resolve("Pendulum-v1", credit="her")

    @pytest.mark.slow
    def test_a_replay_too_small_for_an_episode(self, capsys, tmp_path):
        code, _, errors = call(
            capsys, "train", "Pendulum-v1", "--scheme", "single", "--delay", "end", "--credit",
            "ircr", "--buffer-size", "150", "--initial-steps", "100", "--hidden-sizes", "8",
            "--evaluation-period", "0", "--steps", "400", "--out", str(tmp_path / "run"),
        )  # fmt: skip
        assert code == 2
        assert "the replay of 150 transitions holds no complete episode" in errors
        assert "--buffer-size" in errors


def test_what_the_environment_is_known_to_pay_by():
    assert resolve("Delayed Hopper-v1").delay == 20
    assert resolve("p3s/DelayedHopper-v5").delay == 20
    assert resolve("Pendulum-v1", delay="end").delay == "end"
    assert resolve("Pendulum-v1").delay is None
    assert problem_of(resolve("Pendulum-v1").scheme) == ""
