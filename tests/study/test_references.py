"""What policies that learn nothing earn on a study's environments."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import parse_name
from p3s.errors import UserError
from p3s.runs.trust import trusting
from p3s.study import references
from p3s.study.cells import make_cells
from p3s.study.folder import StudyFolder
from p3s.study.references import complete_references, idle_action, measure, measure_apart
from tests.helpers_studies import study_of

OUTSIDE = """
import gymnasium
from gymnasium import spaces

class Counting(gymnasium.Env):
    '''Pays 1 a step and 10 for an action of exactly 0.5; three steps an episode.'''
    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(0.5, 2.0, (2,))

    def __init__(self, breaks=False):
        self.breaks = breaks

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.observation_space.low, {}

    def step(self, action):
        assert self.action_space.contains(action)
        if self.breaks:
            raise RuntimeError("a joint <broke>")
        self.time += 1
        idle = bool((action == 0.5).all())
        return self.observation_space.low, 1.0 + 10.0 * idle, self.time == 3, False, {}

gymnasium.register("Counting-v0", Counting)
"""

TWO = """
seeds = 1
environments = ["counting:Counting-v0", {id = "counting:Counting-v0", delay = 2, label = "Late"}]
"""


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """A module that this process and those it starts can import, forgotten after the test."""
    (tmp_path / "counting.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with trusting():
        yield
    sys.modules.pop("counting", None)
    gymnasium.registry.pop("Counting-v0", None)


@pytest.fixture
def here(monkeypatch):
    """Play in this process, which is quicker."""
    monkeypatch.setattr(references, "measure_apart", lambda config: measure(config.env))


def complete(folder: StudyFolder, text: str) -> list[str]:
    """What is said while the references of a study are completed."""
    study, said = study_of(text), []
    folder.write(study, make_cells(study))
    complete_references(folder, make_cells(study), said.append)
    return said


class TestMeasuring:
    def test_an_idle_ant_is_paid_for_staying_alive(self, monkeypatch):
        monkeypatch.setattr(references, "EPISODES", 3)
        reference = measure(parse_name("Delayed Ant-v1"))
        assert reference.environment == {"id": "Ant-v5", "delay": 20, "kwargs": {}}
        assert len(reference.returns["idle"]) == len(reference.returns["random"]) == 3
        # More than every published score there: the highest is 724.5.
        assert min(reference.returns["idle"]) > 950
        assert reference.best == "idle"
        assert reference.means["random"] < 200

    def test_discrete_actions_have_no_idle_one(self):
        reference = measure(parse_name("CartPole-v1"))
        assert list(reference.returns) == ["random"]
        assert 10 < reference.means["random"] < 40
        assert len(set(reference.returns["random"])) > 3
        assert measure(parse_name("CartPole-v1")) == reference

    def test_zero_is_clipped_into_the_space(self):
        space = spaces.Box(np.array([-1, 0.5, -3], np.float32), np.array([1, 2, -2], np.float32))
        action = idle_action(space)
        assert action.tolist() == [0, 0.5, -2]
        assert space.contains(action)


@pytest.mark.usefixtures("counting")
class TestStudy:
    @pytest.mark.usefixtures("here")
    def test_each_environment_is_measured_once(self, tmp_path, monkeypatch):
        folder = StudyFolder(tmp_path / "study")
        assert complete(folder, TWO) == [
            "counting:Counting-v0: an idle policy earns 33.0, a random one 3",
            "Late: an idle policy earns 33.0, a random one 3",
        ]
        found = folder.references()
        assert found["Late"].returns == {"idle": [33.0] * 10, "random": [3.0] * 10}
        assert found["Late"].environment["delay"] == 2
        monkeypatch.setattr(references, "measure_apart", None)
        assert complete(folder, TWO) == []

    @pytest.mark.usefixtures("here")
    def test_another_environment_of_the_same_label_is_measured_anew(self, tmp_path):
        folder = StudyFolder(tmp_path / "study")
        complete(folder, TWO)
        (said,) = complete(folder, TWO.replace("delay = 2", "delay = 3"))
        assert said.startswith("Late: ")
        assert folder.references()["Late"].environment["delay"] == 3

    @pytest.mark.usefixtures("here")
    def test_a_damaged_file_is_replaced(self, tmp_path):
        folder = StudyFolder(tmp_path / "study")
        folder.path.mkdir()
        (folder.path / "references.json").write_text('{"Late": {"idle": 3}}')
        assert len(complete(folder, TWO)) == 2
        assert len(folder.references()) == 2

    def test_a_failing_environment_stops_nothing(self, tmp_path):
        folder = StudyFolder(tmp_path / "study")
        said = complete(folder, TWO.replace("delay = 2", "kwargs = {breaks = true}"))
        where = "the environment raised at a step: RuntimeError"
        assert said[1].startswith(f"Late: cannot measure an idle and a random policy: {where}")
        assert "a joint <broke>" in said[1]
        assert list(folder.references()) == ["counting:Counting-v0"]

    def test_a_process_that_dies_or_hangs(self, tmp_path, monkeypatch):
        config = make_cells(study_of(TWO))[0].config
        python = tmp_path / "python"
        monkeypatch.setattr(sys, "executable", str(python))
        monkeypatch.setattr(references, "MOST_SECONDS", 0.5)
        for script, message in (
            ("kill -9 $$", "exit code -9"),
            ("echo hello", "printed no returns"),
            ("exec sleep 60", "not done after"),
        ):
            python.write_text(f"#!/bin/sh\n{script}\n")
            python.chmod(0o755)
            with pytest.raises(UserError, match=message):
                measure_apart(config)
