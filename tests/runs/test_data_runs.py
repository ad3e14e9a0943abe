"""Runs with data: the same bits however they are run, what goes together, and what is refused."""

from __future__ import annotations

import dataclasses
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from p3s import Population
from p3s.envs import make_env
from p3s.errors import UserError
from p3s.experience.rows import fields as fields_of
from p3s.learning.device_crew import DeviceCrew
from p3s.runs import opening
from p3s.runs.transitions import read_transitions
from tests.functional_worlds import point_mass
from tests.goal_worlds import Reach
from tests.helpers import (
    ROOT,
    SMALL,
    assert_same_bits,
    call,
    record,
    resume,
    run,
    small_config,
    small_training,
)

ENV = "Pendulum-v1"


def explored(path: Path, env=ENV, steps: int = 450, **fields) -> Path:
    """The transitions of a run that learns nothing, with observations of a scale of their own."""
    plain = {"num_learners": 2, "initial_steps": 1000, "evaluation_period": 0}
    Population(env, **{**SMALL, **plain, **fields}).learn(steps, progress_bar=False).save_replay(
        path
    )
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return str(explored(tmp_path_factory.mktemp("data") / "pendulum.npz"))


def shifted(data: str, path: Path, **other) -> str:
    """The same transitions with some arrays replaced."""
    np.savez(path, **{**read_transitions(Path(data))._asdict(), **other})
    return str(path)


class TestBits:
    def test_killed_and_resumed_is_uninterrupted(self, data, tmp_path):
        fields = {
            "env": ENV, "data": data, "data_share": 0.5, "cloning_updates": 20, "n_step": 2,
            "own_share": 0.5, "normalize_rewards": True, "buffer_size": 350, "delay": 5,
        }  # fmt: skip
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=330, **fields)
        resume(tmp_path / "killed", until=570)
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    @pytest.mark.slow
    def test_one_killed_before_its_first_checkpoint_begins_with_them_again(self, data, tmp_path):
        fields = {"env": ENV, "data": data, "cloning_updates": 20}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=50, **fields)
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    @pytest.mark.slow
    def test_in_the_replay_they_go_on_without_the_file(self, data, tmp_path):
        once = shutil.copy(data, tmp_path / "once.npz")
        fields = {"env": ENV, "data": str(once), "buffer_size": 600}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=330, **fields)
        once.unlink()
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    @pytest.mark.slow
    def test_running_ahead_changes_nothing(self, data):
        about = {"env": ENV, "data": data, "data_share": 0.5, "normalize_observations": True}
        ours, theirs = (small_training(updates_per_step=3, **about) for _ in range(2))
        theirs.crew.updater._overlap = False
        for training in (ours, theirs):
            training.run(200)
        assert_same_bits(ours, theirs)

    @pytest.mark.slow
    def test_shards_draw_what_a_whole_population_draws(self, data, tmp_path):
        fields = {"env": ENV, "data": data, "data_share": 0.5, "cloning_updates": 20}
        fields |= {"start_learners": (0, 3)}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "one", shards=1, exchange_period=1, **fields)
        assert record(tmp_path / "one") == record(tmp_path / "whole")
        run(tmp_path / "two", shards=2, exchange_period=7, **fields)
        run(tmp_path / "killed", until=330, shards=2, exchange_period=7, **fields)
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "two")

    def test_whoever_uses_none_is_as_before(self, data):
        ours, theirs = small_training(env=ENV), small_training(env=ENV, data=data, data_share=0.5)
        assert np.array_equal(
            ours.crew.updater.random_actions(np.zeros((4, 3)), 1),
            theirs.crew.updater.random_actions(np.zeros((4, 3)), 1),
        )
        assert "data_checksum" not in ours.experience.snapshot()


class TestChanged:
    def test_another_file_is_refused_and_the_same_elsewhere_is_not(self, data, tmp_path, capsys):
        file = tmp_path / "mine.npz"
        shutil.copy(data, file)
        fields = {"env": ENV, "data": str(file), "data_share": 0.5, "evaluation_period": 0}
        run(tmp_path / "run", until=330, **fields)
        rewards = read_transitions(file).rewards.copy()
        rewards[17] += 1
        shifted(data, file, rewards=rewards)
        code, _, errors = call(capsys, "resume", tmp_path / "run")
        assert code == 2
        assert errors.count("\n") == 1
        assert "mine.npz is not what it was when the run began" in errors
        file.unlink()
        code, _, errors = call(capsys, "resume", tmp_path / "run")
        assert (code, errors) == (2, f"p3s: there is no file {file}\n")
        code, _, errors = call(capsys, "resume", tmp_path / "run", "--data", data, "--no-report")
        assert code == 0, errors
        with Population.load(tmp_path / "run", data=data) as population:
            population.learn(4, progress_bar=False)

    def test_one_that_reads_none_takes_none(self, data, tmp_path):
        run(tmp_path / "run", until=330, env=ENV, data=data, evaluation_period=0)
        with pytest.raises(UserError, match="reads no data after its start"):
            opening.reopen(tmp_path / "run", data=data)
        with pytest.raises(UserError, match="data cannot change"):
            Population.load(tmp_path / "run", data="others.npz")

    def test_someone_elses_run_reads_nothing_here(self, data, tmp_path, monkeypatch):
        fields = {"env": ENV, "evaluation_period": 0, "data": data, "data_share": 0.5}
        run(tmp_path / "run", until=330, **fields)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
        with pytest.raises(UserError, match=r"did not write reads .*pendulum\.npz: --trust"):
            opening.reopen(tmp_path / "run")
        with pytest.raises(UserError, match=r"did not write reads .*pendulum\.npz"):
            Population.load(tmp_path / "run")
        opening.reopen(tmp_path / "run", data=data)[0].close()
        Population.load(tmp_path / "run", trust=True).close()


class TestTogether:
    def test_a_replay_begins_with_them(self, data):
        population = Population(ENV, data=data, **{**SMALL, "buffer_size": 500})
        ring = population.training.experience.ring
        given = read_transitions(Path(data))
        view = fields_of(ring.rows[:450], population.training.spec)
        assert ring.num_added == 450
        assert np.array_equal(view["observation"], given.observations)
        assert np.allclose(view["action"] * 2, given.actions)
        population.learn(100, progress_bar=False)
        assert ring.num_added == 550, "the first of them are overwritten"

    @pytest.mark.slow
    def test_goals_of_hindsight_are_for_the_runs_own_steps(self, tmp_path):
        file = str(explored(tmp_path / "reach.npz", "test/Reach-v0"))
        fields = {"env": "test/Reach-v0", "hindsight": "final", "num_learners": 2, "data": file}
        training = small_training(data_share=0.5, **fields)
        given = {tuple(row) for row in read_transitions(Path(file)).observations.tolist()}
        training.run(200)
        rows = training.experience.take(1, 2, 0).rows
        seen = fields_of(rows, training.spec)["observation"][:, 4:].reshape(-1, 6)
        assert all(tuple(row) in given for row in seen.tolist())

    @pytest.mark.slow
    def test_filled_episodes_get_goals_of_hindsight(self, tmp_path):
        file = str(explored(tmp_path / "reach.npz", "test/Reach-v0"))
        fields = {"env": "test/Reach-v0", "hindsight": "final", "num_learners": 2}
        training = opening.begun(small_config(data=file, **fields), partial(make_env, Reach))
        rows = fields_of(training.experience.take(1, 2, 0).rows, training.spec)
        desired = slice(2, 4)  # achieved_goal, desired_goal, observation
        given = {tuple(r) for r in read_transitions(Path(file)).observations[:, desired].tolist()}
        new = [tuple(r) not in given for r in rows["observation"][0, :, desired].tolist()]
        assert new == [True] * 6 + [False] * 2, "four of five of eight"

    @pytest.mark.slow
    @pytest.mark.parametrize("scheme", ["cem", "erl", "evorainbow", "distributed", "pbt"])
    def test_every_kind_of_scheme_draws_from_them(self, scheme, data, tmp_path):
        fields = {"env": ENV, "scheme": scheme, "data": data, "data_share": 0.5}
        run(tmp_path / "whole", **fields)
        run(tmp_path / "killed", until=330, **fields)
        resume(tmp_path / "killed")
        assert record(tmp_path / "killed") == record(tmp_path / "whole")

    @pytest.mark.slow
    def test_stretches_on_a_device_begin_with_them_and_share_them_step_by_step(
        self, tmp_path, capsys
    ):
        make = partial(make_env, point_mass)
        file = str(explored(tmp_path / "mass.npz", point_mass))
        about = {"env": "CartPole-v1", "algorithm": "td3", "evaluation_period": 0, "data": file}

        def begun(**fields):
            config = dataclasses.replace(small_config(**about, **fields), env=None)
            return opening.begun(config, make)

        filled = begun()
        assert isinstance(filled.crew, DeviceCrew)
        assert filled.experience.ring.num_added == 450
        spec = filled.spec
        seen = fields_of(filled.experience.ring.rows[:450], spec)["observation"]
        assert np.array_equal(seen, read_transitions(Path(file)).observations)
        filled.run(100)
        capsys.readouterr()
        shared = begun(data_share=0.5)
        assert not isinstance(shared.crew, DeviceCrew)
        assert "not in stretches on the device: that does not go with data_share" in (
            capsys.readouterr().err
        )
        with pytest.raises(UserError, match=r"cannot be device in this run: .*data_share"):
            begun(data_share=0.5, replay_device="device")


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--data-share", "0.5"], "data_share needs data (--data)"),
            (["--cloning-updates", "5"], "cloning_updates need data (--data)"),
            (["--data", "D", "--scheme", "rollout"], "ppo keeps none"),
            (["--data", "D", "--shards", "2"], "data in shards need a share of their own"),
            (["--data", "D", "--own-share", "0.5"], "data beside own_share need a share"),
            (["--data", "D", "--data-share", "0.5", "--credit", "ircr"], "leave data_share out"),
            (["--data", "D", "--data-share", "0.001"], "is not one row of a minibatch"),
            (["--data", "D", "--data-share", "1.5"], "data_share must be between 0 and 1,"),
            (["--data", "D", "--buffer-size", "100"], "D holds 450 transitions, the replay 100"),
            (["--data", "nothing.npz"], "there is no file nothing.npz"),
        ],
    )
    def test_in_one_line_and_nothing_is_written(self, words, message, data, tmp_path, capsys):
        words = [data if word == "D" else word for word in words]
        out = tmp_path / "run"
        code, _, errors = call(capsys, "train", ENV, *words, "--steps", "100", "--out", out)
        assert (code, message.replace("D holds", f"{data} holds") in errors) == (2, True), errors
        assert errors.count("\n") == 1
        assert not out.exists()

    def test_data_of_another_environment(self, data, tmp_path, capsys):
        out = tmp_path / "run"
        words = ["--data", data, "--data-share", "0.5", "--steps", "100", "--out", out]
        code, _, errors = call(capsys, "train", "InvertedPendulum-v5", *words)
        assert (code, errors.count("\n")) == (2, 1)
        assert f"{data}: observations are float32[450, 3]; of InvertedPendulum-v5 " in errors
        assert not out.exists()

    @pytest.mark.parametrize("share", ["0", "0.5"])
    def test_data_with_nan(self, share, data, tmp_path, capsys):
        seen = read_transitions(Path(data)).observations.copy()
        seen[3, 1] = np.nan
        file = shifted(data, tmp_path / "nan.npz", observations=seen)
        words = ["--data", file, "--data-share", share, "--out", tmp_path / "run"]
        code, _, errors = call(capsys, "train", ENV, *words)
        assert (code, errors.count("\n")) == (2, 1)
        assert "observations[3, 1] is nan, not a finite number" in errors
        assert not (tmp_path / "run").exists()


class TestReplays:
    def test_a_population_goes_on_with_those_of_another(self, data, tmp_path):
        population = Population(ENV, n_step=2, **{**SMALL, "evaluation_period": 0})
        population.load_replay(data)
        population.learn(100, progress_bar=False)
        population.load_replay(data)
        assert population.training.experience.ring.num_added == 1000
        population.save_replay(tmp_path / "both.npz")
        found = read_transitions(tmp_path / "both.npz")
        assert found.rewards.shape == (1000,)
        again = Population(ENV, n_step=2, **{**SMALL, "evaluation_period": 0})
        again.load_replay(tmp_path / "both.npz")
        again.save_replay(tmp_path / "again.npz")
        for ours, theirs in zip(found, read_transitions(tmp_path / "again.npz"), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)

    def test_a_run_exports_what_it_remembers(self, tmp_path, capsys):
        run(tmp_path / "run", env=ENV, evaluation_period=0, buffer_size=500)
        code, output, _ = call(capsys, "replay", "export", tmp_path / "run")
        assert (code, "wrote 500 transitions" in output) == (0, True)
        found = read_transitions(tmp_path / "run" / "replay.npz")
        follows = (found.observations[1:] == found.next_observations[:-1]).all(axis=1)
        assert np.array_equal(follows, ~(found.truncations | found.terminations)[:-1])
        assert found.truncations.sum() == 4, "of each learner the latest step"
        assert np.abs(found.actions).max() > 1, "in the environment's own range"
        with Population.load(tmp_path / "run") as population:
            population.save_replay(tmp_path / "python.npz")
        for ours, theirs in zip(found, read_transitions(tmp_path / "python.npz"), strict=True):
            assert np.array_equal(ours, theirs)

    @pytest.mark.parametrize(
        "fields",
        [
            {"env": "CartPole-v1", "algorithm": "dqn"},
            *(
                pytest.param(fields, marks=pytest.mark.slow)
                for fields in (
                    {"shards": 2, "exchange_period": 7, "env": ENV},
                    {"hindsight": "future", "env": "test/Reach-v0"},
                    {"scheme": "cem", "env": ENV},
                )
            ),
        ],
    )
    def test_whatever_the_run_is(self, fields, tmp_path, capsys):
        run(tmp_path / "run", until=330, **{"evaluation_period": 0, **fields})
        file = tmp_path / "x.npz"
        assert call(capsys, "replay", "export", tmp_path / "run", "-o", file)[0] == 0
        found = read_transitions(file)
        ends = found.terminations | found.truncations
        assert ends[-1]
        assert 4 <= ends.sum() < len(ends) / 4
        follows = (found.observations[1:] == found.next_observations[:-1]).all(axis=1)
        assert follows[~ends[:-1]].all()
        population = Population(fields["env"], algorithm=fields.get("algorithm", "td3"))
        population.load_replay(file)
        assert population.training.experience.ring.num_added == len(found.rewards)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"scheme": "rollout"}, "ppo keeps no replay|keeps no replay"),
            ({"shards": 2}, "can be put into one replay, and this run is in shards"),
            ({"own_share": 0.5}, "own_share needs to know"),
            ({"buffer_size": 400}, "holds 450 transitions, the replay 400"),
        ],
    )
    def test_where_none_can_be_put(self, fields, message, data):
        population = Population(ENV, **fields)
        with pytest.raises(UserError, match=message):
            population.load_replay(data)

    def test_where_there_is_none(self, tmp_path, capsys):
        for population, message in (
            (Population(ENV), "the replay holds no transitions yet"),
            (Population(ENV, "rollout"), "ppo keeps no replay"),
        ):
            with pytest.raises(UserError, match=message):
                population.save_replay(tmp_path / "x.npz")
        run(tmp_path / "run", until=50, evaluation_period=0)
        code, _, errors = call(capsys, "replay", "export", tmp_path / "run")
        assert (code, errors.count("\n"), "no checkpoint yet" in errors) == (2, 1, True)
        assert call(capsys, "replay", "export", tmp_path / "nothing")[0] == 2


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "data.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    for code in blocks:
        exec(compile(code.replace("20_000", "200"), "docs/data.md", "exec"), {})
    assert read_transitions(tmp_path / "demonstrations.npz").truncations.sum() == 5
    assert len(read_transitions(tmp_path / "replay.npz").rewards) == 200
