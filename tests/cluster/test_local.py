"""Runs over shards in this process."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import p3s
from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.records import read_rows
from tests.helpers import SMALL, assert_same_bits, call, record, small_config

MORE = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("sharing", "resetting", "pbt", "pb2", "mf_pbt")
]
SPLIT = ["p3s", *MORE]
REVIEWED = {"resetting": 50, "pbt": 50, "pb2": 50, "mf_pbt": 25}


def sharded(path, steps: int = 800, stop: int | None = None, **fields):
    """A run over shards in a folder; a stop writes nothing, as if it was killed there."""
    config = small_config(steps=steps, checkpoint_period=150, **{"shards": 2, **fields})
    training = opening.begin(config, path)
    training.run(steps, callback=lambda now: now.total_steps < (stop or steps))
    training.close()
    return training


def assert_one_shard_is_whole(folder, **fields) -> None:
    """One shard that exchanges every step is a run in one piece."""
    config = small_config(steps=600, checkpoint_period=150, **fields)
    whole = opening.begin(config, folder / "whole")
    whole.run(600)
    whole.close()
    sharded(folder / "sharded", 600, shards=1, exchange_period=1, **fields)
    assert record(folder / "sharded") == record(folder / "whole")


@pytest.mark.parametrize("scheme", SPLIT)
def test_one_shard_that_exchanges_every_step_is_a_run_in_one_piece(scheme, tmp_path):
    assert_one_shard_is_whole(tmp_path, scheme=scheme, review_period=REVIEWED.get(scheme, 25))


def test_one_shard_normalizes_as_a_run_in_one_piece_does(tmp_path):
    fields = {"normalize_observations": True, "normalize_rewards": True, "n_step": 2}
    assert_one_shard_is_whole(tmp_path, **fields)


@pytest.mark.parametrize("scheme", SPLIT)
def test_killed_and_resumed_is_uninterrupted(scheme, tmp_path):
    fields = {"scheme": scheme, "review_period": 25, "exchange_period": 7}
    sharded(tmp_path / "whole", **fields)
    sharded(tmp_path / "killed", stop=500, **fields)
    training, _ = opening.reopen(tmp_path / "killed")
    assert 0 < training.total_steps < 500
    training.run(800)
    training.close()
    assert record(tmp_path / "killed") == record(tmp_path / "whole")


def test_other_algorithms_and_normalized_observations(tmp_path):
    fields = {
        "env": "CartPole-v1", "algorithm": "dqn", "normalize_observations": True,
        "num_learners": 3, "exchange_period": 3, "n_step": 3,
    }  # fmt: skip
    sharded(tmp_path / "whole", 450, **fields)
    sharded(tmp_path / "killed", 450, stop=300, **fields)
    training, _ = opening.reopen(tmp_path / "killed")
    assert training.crew.parts == [range(2), range(2, 3)]
    training.run(450)
    training.close()
    assert record(tmp_path / "killed") == record(tmp_path / "whole")


def run_with_a_diverged_learner(path, *stops: int):
    """Learner 3 diverges at step 250; the run is continued at every stop."""
    config = small_config(
        steps=800, shards=2, exchange_period=5, checkpoint_period=100, on_divergence="replace"
    )
    training = opening.begin(config, path)
    training.run(800, callback=lambda now: now.total_steps < 250)
    training.crew.catch_up()
    _, shard = training.crew.places.shards
    learners = shard.updater.state.learners
    policy = jax.tree.map(lambda leaf: leaf.at[1].set(np.nan), learners.policy)
    shard.updater.state = shard.updater.state._replace(learners=learners._replace(policy=policy))
    for stop in stops:
        training.run(800, callback=lambda now, stop=stop: now.total_steps < stop)
        training.close()
        training, _ = opening.reopen(path)
    training.run(800)
    training.close()
    return record(path)


def test_a_learner_that_diverged_is_replaced_by_one_of_another_shard(tmp_path, capsys):
    whole = run_with_a_diverged_learner(tmp_path / "whole")
    (row,) = [row for row in whole["lineage"] if "replaced" in row]
    assert (row["step"], row["replaced"]) == (300, [3])
    assert run_with_a_diverged_learner(tmp_path / "parts", 310, 410) == whole


def test_a_population_in_shards_is_saved_and_loaded(tmp_path):
    fields = {**SMALL, "num_learners": 4, "shards": 4, "exchange_period": 5}
    population = p3s.Population("Pendulum-v1", **fields)
    population.learn(600, progress_bar=False)
    population.save(tmp_path / "saved")
    again = p3s.Population.load(tmp_path / "saved")
    for each in (population, again):
        each.learn(300, progress_bar=False)
    assert_same_bits(population.training, again.training)
    observation = np.zeros(3, np.float32)
    assert np.array_equal(population.predict(observation)[0], again.predict(observation)[0])
    actions = [policy.predict(observation)[0] for policy in population.policies]
    best = population.policy.about["run"]["learner"]
    assert np.array_equal(actions[best], population.predict(observation)[0])
    parameters = population.get_parameters()
    policies = [value for name, value in parameters.items() if "learners/policy" in name]
    assert {len(actions), *map(len, policies)} == {4}
    with pytest.raises(UserError, match="in a run without shards only"):
        population.set_parameters(parameters)


def test_the_chief_hears_of_all_learners(tmp_path):
    sharded(tmp_path / "run", scheme="pbt", shards=3, num_learners=4)
    rows = read_rows(tmp_path / "run" / "lineage.jsonl")
    assert any(row["copies"] for row in rows)
    assert all(len(row["own_fields"]["learning_rate"]) == 4 for row in rows)
    metrics = read_rows(tmp_path / "run" / "metrics.jsonl")[-1]
    assert len(metrics["learners"]["value_loss"]) == 4
    assert [set(shard) for shard in metrics["shards"]] == [{"steps_per_second", "waiting"}] * 3


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"scheme": "center"},
            "center cannot be split into shards; these can: p3s, sharing",
        ),
        ({"scheme": "cem"}, "scheme cem cannot be split"),
        ({"scheme": "distributed"}, "scheme distributed cannot be split"),
        ({"shards": 5}, "shards must be at most 4, the number of learners"),
        ({"exchange_period": 21}, "the first update comes earlier"),
        ({"exchange_period": 20, "buffer_size": 60}, "buffer_size must hold"),
        ({"env_workers": 2}, "env_workers is for runs without shards"),
        ({"devices": 4}, "devices must divide the 2 learners in a shard: 1, 2"),
        ({"engine": "ray", "shards": None}, "engine ray needs a number of shards"),
    ],
)
def test_what_cannot_be_split(fields, problem):
    with pytest.raises(UserError, match=problem):
        small_config(**{"shards": 2, **fields}).check()


def test_watch_shows_the_shards(tmp_path, capsys):
    sharded(tmp_path / "run", 400)
    _, out, _ = call(capsys, "watch", str(tmp_path / "run"), "--once")
    assert "waiting for others" in out
