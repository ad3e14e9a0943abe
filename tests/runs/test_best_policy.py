"""The best policy of a run is kept beside the last one."""

from __future__ import annotations

import pytest

import p3s
from p3s.errors import UserError
from p3s.runs import opening
from p3s.runs.best_policy import BEST, LAST, BestPolicy
from p3s.runs.records import read_rows
from tests.helpers import call, record, resume, run, small_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("best") / "run"
    # The returns of a pendulum that hardly learns go up and down.
    run(path, env="Pendulum-v1", evaluation_period=200, evaluation_episodes=2)
    return path


def test_it_is_the_policy_of_the_highest_score(folder):
    rows = read_rows(folder / "evaluations.jsonl")
    best = max(rows, key=lambda row: row["score"])
    about = p3s.load(folder).about["run"]
    assert about["step"] == best["step"]
    assert about["learner"] == best["champion"]
    assert about["champion_return"] == best["champion_return"]
    assert p3s.load(folder, last=True).about["run"]["step"] == 800


class Evaluations:
    """A training whose champion returns are given."""

    def __init__(self, tmp_path):
        self.training = opening.begin(small_config(steps=200), tmp_path / "run")

    def see(self, best: BestPolicy, *scores: float) -> None:
        for score in scores:
            self.training.counters.total_steps += 1
            row = {"score": score, "champion_return": score - 0.5}
            best.see(self.training.policy(), row)


def test_ties_and_a_number_that_nothing_was_chosen_by(tmp_path):
    evaluations, best = Evaluations(tmp_path), BestPolicy()
    assert best.snapshot() == {}
    best.save(tmp_path)
    assert not (tmp_path / BEST).exists()
    evaluations.see(best, -3.0, -5.0, 2.0, 2.0, 1.0)
    best.save(tmp_path)
    about = p3s.load(tmp_path / BEST).about["run"]
    assert (about["step"], about["champion_return"]) == (3, 1.5)
    evaluations.training.close()


def test_a_checkpoint_holds_the_best_of_its_own_past(tmp_path):
    evaluations, best = Evaluations(tmp_path), BestPolicy()
    evaluations.see(best, 1.0, 7.0)
    snapshot = best.snapshot()
    evaluations.see(best, 9.0)
    resumed = BestPolicy()
    resumed.resume(snapshot)
    assert resumed.score == 7.0
    resumed.save(tmp_path)
    assert p3s.load(tmp_path / BEST).about["run"]["step"] == 2
    evaluations.training.close()


def test_resume_brings_it_back(folder, tmp_path):
    fields = {"env": "Pendulum-v1", "evaluation_period": 200, "evaluation_episodes": 2}
    run(tmp_path / "parts", until=650, **fields)
    (tmp_path / "parts" / BEST).unlink(missing_ok=True)
    resume(tmp_path / "parts")
    assert record(tmp_path / "parts") == record(folder)


def test_commands_take_either(capsys, folder, tmp_path):
    step = p3s.load(folder).about["run"]["step"]
    for flags, kind, at in (
        ((), "best policy", step),
        (("--best",), "best policy", step),
        (("--last",), "last policy", 800),
    ):
        code, output, _ = call(capsys, "evaluate", folder, "--episodes", 1, *flags)
        assert code == 0
        assert output.startswith(kind)
        assert f"at step {at}" in output
    code, _, error = call(capsys, "evaluate", folder, "--best", "--last")
    assert (code, error) == (2, "p3s: --best and --last exclude each other\n")
    only_last = tmp_path / "only-last"
    only_last.mkdir()
    (only_last / LAST).write_bytes((folder / LAST).read_bytes())
    assert call(capsys, "evaluate", only_last, "--episodes", 1)[1].startswith("last policy")
    code, _, error = call(capsys, "export", only_last, tmp_path / "x.onnx", "--best")
    assert code == 2
    assert "it was not evaluated" in error


def test_a_saved_population_has_it_too(tmp_path):
    population = p3s.Population(
        "Pendulum-v1", preset="paper", hidden_sizes=(16,), initial_steps=20,
        evaluation_period=400, evaluation_episodes=1,
    )  # fmt: skip
    population.learn(900, progress_bar=False)
    population.save(tmp_path / "saved")
    assert "champion_return" in p3s.load(tmp_path / "saved").about["run"]
    with pytest.raises(UserError, match="no policy"):
        p3s.load(tmp_path)
    other = p3s.Population("Pendulum-v1", hidden_sizes=(16,), evaluation_period=0, seed=1)
    other.learn(20, progress_bar=False)
    other.save(tmp_path / "saved")
    assert p3s.load(tmp_path / "saved").about["run"]["seed"] == 1


def test_on_policy_the_noiseless_episodes_decide(tmp_path):
    evaluations, best = Evaluations(tmp_path), BestPolicy()
    for noisy, noiseless in ((3.5, 25.0), (2.5, 35.0), (9.0, 30.0)):
        evaluations.training.counters.total_steps += 1
        row = {
            "champion": 0,
            **dict.fromkeys(("score", "champion_return"), noisy),
            **{f"deterministic_{name}": noiseless for name in ("score", "champion_return")},
        }
        best.see(evaluations.training.policy(), row)
    best.save(tmp_path)
    about = p3s.load(tmp_path / BEST).about["run"]
    assert (about["step"], about["champion_return"]) == (2, 35.0)
    evaluations.training.close()
