"""Less than one update per own step: counted by updates as ever, exact, and resumed to the bit."""

from __future__ import annotations

from p3s.cli.advice import cost_of
from p3s.cli.train import parse_train
from p3s.runs import opening
from p3s.train import Training
from tests.helpers import record, resume, run, small_config, trained

FIELDS = {"updates_per_step": 0.25, "evaluation_period": 0}


def test_updates_and_their_policy_steps():
    training = trained(400, **FIELDS)  # 100 own steps, the first 19 before T_initial
    assert training.counters.updates == 100 // 4 - 19 // 4
    # One policy step in two updates: the target networks and the policy moved ten times.
    assert training.crew.updater.state.learners.optimizers["policy"][0].count.tolist() == [10] * 4
    assert training.crew.updater.state.learners.optimizers["value"][0].count.tolist() == [21] * 4


def test_killed_and_resumed(tmp_path):
    run(tmp_path / "whole", **FIELDS)
    run(tmp_path / "killed", until=350, **FIELDS)
    resume(tmp_path / "killed")
    assert record(tmp_path / "killed") == record(tmp_path / "whole")


def test_shards_make_the_same_updates():
    config = small_config(**FIELDS, shards=2)
    training = Training(config, opening.env_maker(config))
    training.run(400)
    training.snapshot()  # what is due after the last step
    assert training.counters.updates == 21
    training.close()


def test_on_the_command_line():
    config, _ = parse_train(["CartPole-v1", "--scheme", "single", "--updates-per-step", "0.25"])
    assert config.scheme.updates_per_step == 0.25
    expected = "cost: 50,000 environment steps and 12,251 updates: 0.25 per step"
    assert cost_of(config) == expected
    whole, _ = parse_train(["CartPole-v1", "--updates-per-step", "4"])
    assert whole.scheme.updates_per_step == 4
    assert type(whole.scheme.updates_per_step) is int
