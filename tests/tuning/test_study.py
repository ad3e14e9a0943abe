"""Who works on which trial: none is lost, none is worked on twice; what a study is kept for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from p3s.config.spec import RunSpec
from p3s.errors import UserError
from p3s.tuning.asked import search_spaces
from p3s.tuning.declaration import Declaration, Proposals
from p3s.tuning.study import Tuning, counted

pytest.importorskip("optuna")

SPEC = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000})


def declared(spec: RunSpec = SPEC, seeds: int = 1, search=("learning_rate", "batch_size")):
    return Declaration(spec, search_spaces(spec, search), seeds)


def opened(folder: Path, storage: str | None = None, declaration=None, **proposals) -> Tuning:
    storage = storage or str(folder / "journal.log")
    tuning = Tuning(folder, storage, "mine", Proposals(**proposals))
    tuning.declare(declaration or declared())
    return tuning


@pytest.fixture(params=["journal", "sqlite"])
def storage(request, tmp_path):
    return (
        str(tmp_path / "journal.log")
        if request.param == "journal"
        else f"sqlite:///{tmp_path}/x.db"
    )


def test_trials_are_claimed_once_and_no_more_than_wanted(tmp_path, storage):
    ours, theirs = opened(tmp_path, storage), opened(tmp_path, storage)
    claims = [tuning.claim(3, 10) for tuning in (ours, theirs, ours, theirs)]
    assert [claim and claim.number for claim in claims] == [0, 1, 2, None]
    ours.study.tell(0, 1.0)
    assert theirs.claim(3, 10) is None
    ours.fail(1, "broke\nat line 3")
    assert [t.user_attrs.get("error") for t in theirs.trials] == [None, "broke", None]
    assert theirs.claim(3, 10).number == 3  # in its place
    assert not theirs.is_done(3, 10)
    ours.study.tell(2, 2.0)
    ours.study.tell(3, 3.0)
    assert theirs.is_done(3, 10)
    assert counted(theirs.trials)["finished"] == 3


def test_no_more_trials_than_allowed(tmp_path):
    tuning = opened(tmp_path)
    for number in range(2):
        assert tuning.claim(1, 2).number == number
        tuning.fail(number, "broke")
    assert tuning.claim(1, 2) is None
    assert tuning.is_done(1, 2)


def test_a_trial_whose_process_is_gone_goes_on_with_its_parameters(tmp_path, storage):
    ours = opened(tmp_path, storage)
    claim = ours.claim(2, 10)
    params = ours.trial(claim.number).params
    assert set(params) == {"learning_rate", "batch_size"}
    theirs = opened(tmp_path, storage)
    other = theirs.claim(2, 10)
    assert other.number == 1
    os.close(claim.lock)
    again = theirs.claim(2, 10)
    assert (again.number, again.is_new) == (0, False)
    assert theirs.trial(0).params == params
    assert len(theirs.trials) == 2


def test_a_trial_killed_while_it_was_proposed_gets_its_parameters(tmp_path):
    tuning = opened(tmp_path)
    tuning.study.ask()  # and then its process was killed
    claim = tuning.claim(1, 10)
    assert (claim.number, claim.is_new) == (0, False)
    assert set(tuning.trial(0).params) == {"learning_rate", "batch_size"}
    assert opened(tmp_path / "other").claim(1, 10).number == 0
    assert opened(tmp_path / "other").trial(0).params == tuning.trial(0).params


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_is_repeatable(tmp_path, sampler):
    def search(folder: Path, spec: RunSpec = SPEC) -> list[dict]:
        tuning = opened(folder, declaration=declared(spec), sampler=sampler, startup_trials=3)
        for number in range(6):
            os.close(tuning.claim(6, 10).lock)
            tuning.study.tell(number, float(number % 3))
        return [trial.params for trial in tuning.trials]

    first = search(tmp_path / "a")
    assert search(tmp_path / "b") == first
    assert len({params["learning_rate"] for params in first}) == 6
    other = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000, "seed": 1})
    assert search(tmp_path / "c", other) != first


def test_a_trial_is_a_run_with_its_values_and_seeds(tmp_path):
    spec = RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 2000, "seed": 7})
    tuning = opened(tmp_path, declaration=declared(spec, seeds=2, search=["num_learners", "rho"]))
    tuning.claim(1, 10)
    again = Tuning(tmp_path, tuning.storage, "mine", Proposals())
    again.reopen()
    params = again.trial(0).params
    first, second = (again.declared.config(params, seed) for seed in range(2))
    assert (first.options.seed, second.options.seed) == (7, 8)
    assert first.scheme == second.scheme
    assert str(first.scheme.num_learners) == params["num_learners"]
    assert first.scheme.rho == params["rho"]
    # What follows from the number of learners follows from the trial's.
    assert first.scheme.initial_steps == -(-1000 // first.scheme.num_learners)
    assert again.run(0, 1) == tmp_path / "trials" / "0" / "seed-8"


@pytest.mark.parametrize(
    ("spec", "seeds", "search", "message"),
    [
        (RunSpec("CartPole-v1"), 1, ["learning_rate"], "tunes Pendulum-v1, not CartPole-v1"),
        (RunSpec("Pendulum-v1", algorithm="sac", fields={"steps": 2000}), 1,
         ["learning_rate", "batch_size"], 'was started with algorithm = "td3", not "sac"'),
        (RunSpec("Pendulum-v1", algorithm="td3", fields={"steps": 3000}), 1,
         ["learning_rate", "batch_size"], "was started with steps = 2000, not 3000"),
        (SPEC, 2, ["learning_rate", "batch_size"], "was started with seeds = 1, not 2"),
        (SPEC, 1, ["learning_rate"], "was started with search.batch_size = "),
    ],
)  # fmt: skip
def test_a_study_of_something_else_is_refused(tmp_path, spec, seeds, search, message):
    opened(tmp_path)
    with pytest.raises(UserError) as error:
        opened(tmp_path, declaration=declared(spec, seeds, search))
    assert message in str(error.value)
    assert "choose another --study-name" in str(error.value)


def test_a_study_of_another_version_or_tool_is_refused(tmp_path):
    tuning = opened(tmp_path)
    tuning.study.set_user_attr("p3s", {"version": 99})
    with pytest.raises(UserError, match="is of another version of p3s"):
        opened(tmp_path)
    other = Tuning(tmp_path / "other", str(tmp_path / "x.log"), "mine", Proposals())
    other.study.ask()
    with pytest.raises(UserError, match="was not made by p3s tune"):
        other.declare(declared())


def test_a_study_keeps_its_trials_in_one_folder(tmp_path):
    opened(tmp_path / "a", str(tmp_path / "journal.log"))
    with pytest.raises(UserError, match=f"keeps its trials in {tmp_path / 'a'}: --out"):
        opened(tmp_path / "b", str(tmp_path / "journal.log"))
