"""Files from someone else run no code: keys, signatures, pickled environments, modules, links."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import p3s
from p3s.envs.copies import state_name
from p3s.errors import UserError
from p3s.policies.policy import Policy
from p3s.runs import opening, trust
from p3s.runs.checkpoints import Checkpoints
from p3s.runs.records import read_config, write_config
from tests.helpers import SMALL, Counter, call, record, run

EVIL = "import pathlib\npathlib.Path('executed').touch()\n"


class Pickled(Counter):
    """An environment whose state has no plain form."""

    def reset(self, seed=None, options=None):
        self.seen = {0}
        return super().reset(seed=seed)

    def step(self, action):
        self.seen.add(self.count)
        return super().step(action)


@pytest.fixture
def someone_else(monkeypatch, tmp_path):
    """From now on another user, in a folder with a module of theirs."""

    def become() -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))

    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield become
    sys.modules.pop("evil", None)


@pytest.fixture
def saved(tmp_path) -> Path:
    population = p3s.Population(Pickled, **{**SMALL, "evaluation_period": 0})
    population.learn(40, progress_bar=False).save(tmp_path / "saved")
    assert (tmp_path / "saved").is_dir()
    return tmp_path / "saved"


class TestKey:
    def test_only_the_user_can_read_it(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        first = trust.signed({"a": 1})
        assert trust.is_own_record(first)
        assert trust.signed(first) == first
        file = trust.key_file()
        assert (file.stat().st_mode & 0o777, file.stat().st_size) == (0o600, trust.KEY_BYTES)
        assert [entry.name for entry in file.parent.iterdir()] == ["key"]
        assert not trust.is_own_record({**first, "a": 2})
        file.unlink()
        assert not trust.is_own_record(first)

    def test_without_a_place_for_it(self, tmp_path, monkeypatch):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
        assert trust.signed({"a": 1}) == {"a": 1}
        assert not trust.is_own_record({"a": 1})


class TestPickledEnvironments:
    def test_ones_own_go_on(self, saved, capsys):
        again = p3s.Population.load(saved, env=Pickled)
        assert again.training.crew.environments.lengths.tolist() == [3] * 4
        assert capsys.readouterr().err == ""

    def test_those_of_someone_else_begin_anew(self, saved, someone_else, capsys):
        someone_else()
        again = p3s.Population.load(saved, env=Pickled)
        assert again.training.crew.environments.lengths.tolist() == [0] * 4
        assert "new episodes begin (--trust goes on" in capsys.readouterr().err
        trusted = p3s.Population.load(saved, env=Pickled, trust=True)
        assert trusted.training.crew.environments.lengths.tolist() == [3] * 4

    def test_a_planted_state_is_not_unpickled(self, tmp_path, monkeypatch):
        """Neither beside the signature of another state, nor without one."""

        class Planted:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "executed"),)

        import pickle

        planted = np.frombuffer(pickle.dumps(Planted()), np.uint8)
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        own = {state_name(0): np.frombuffer(b"\x80own", np.uint8)}
        signature = trust.sign_states({"environments": own})["environments"][trust.SIGNATURE]
        for signed in ({}, {trust.SIGNATURE: signature}):
            values = {state_name(0): planted, **signed}
            monkeypatch.setattr("p3s.runs.checkpoints.sign_states", lambda snapshot: snapshot)
            checkpoints.write(100, {"environments": values}, None)
            snapshot, notes = checkpoints.read(None)
            assert snapshot == {"environments": {}}
            assert "not signed with your key" in notes[0]


class TestModules:
    def plant(self, path: Path, **changes) -> None:
        """Someone else's configuration, with a checksum that fits."""
        config = {**read_config(path), **changes}
        os.environ["XDG_CONFIG_HOME"] += "/other"
        write_config(path, config)
        os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_HOME"].removesuffix("/other")

    @pytest.mark.parametrize(
        "changes",
        [
            {"modules": ["evil"]},
            {"environment": {"id": "evil:Evil-v0", "delay": None, "kwargs": {}, "note": None}},
            {"environment": {"id": "p3s/DelayedHopper-v5", "delay": None, "note": None,
                             "kwargs": {"env_id": "evil:Evil-v0"}}},
        ],
    )  # fmt: skip
    def test_are_not_imported(self, tmp_path, someone_else, capsys, changes):
        run(tmp_path / "run", until=250)
        self.plant(tmp_path / "run", **changes)
        for command in ("resume", "evaluate"):
            code, _, errors = call(capsys, command, tmp_path / "run")
            assert (code, errors.count("\n")) == (2, 1)
            assert "names a module that you have not imported: 'evil'" in errors
        with pytest.raises(UserError, match="you have not imported"):
            p3s.Population.load(tmp_path / "run")
        assert "evil" not in sys.modules
        assert not Path("executed").exists()

    def test_are_imported_if_asked_to(self, tmp_path, someone_else, capsys):
        run(tmp_path / "whole")
        run(tmp_path / "run", until=250)
        self.plant(tmp_path / "run", modules=["evil"])
        shutil.copytree(tmp_path / "run", tmp_path / "again")
        assert call(capsys, "--import", "evil", "resume", tmp_path / "run", "--no-report")[0] == 0
        del sys.modules["evil"]
        _, _, errors = call(capsys, "resume", tmp_path / "again", "--no-report")
        command = f"p3s {{}} resume {tmp_path / 'again'} --no-report"
        assert f" If you know it: {command.format('--import evil')}. " in errors
        assert errors.endswith(f" If you trust all of it: {command.format('--trust')}\n")
        assert call(capsys, "resume", tmp_path / "again", "--trust", "--no-report")[0] == 0
        assert record(tmp_path / "run") == record(tmp_path / "again") == record(tmp_path / "whole")

    def test_a_policy_imports_none(self, population, tmp_path, someone_else, capsys):
        policy = population.policy
        policy.about["environment"] = {"id": "evil:Evil-v0", "delay": None, "kwargs": {}}
        policy.save(tmp_path / "policy.safetensors")
        code, _, errors = call(capsys, "evaluate", tmp_path / "policy.safetensors")
        assert (code, errors.count("\n")) == (2, 1)
        assert "the policy's environment names a module" in errors
        assert not Path("executed").exists()
        with pytest.raises(UserError, match="unknown environment 'evil:Evil-v0'"):
            p3s.load(tmp_path / "policy.safetensors", trust=True).make_env()
        assert Path("executed").exists()

    def test_a_study_imports_none(self, tmp_path, someone_else, capsys):
        study = 'steps = 100\nseeds = 1\nenvironments = ["Pendulum-v1"]\n'
        study += '[[methods]]\nalgorithm = "evil:Evil"\n'
        (tmp_path / "study.toml").write_text(study)
        code, _, errors = call(capsys, "study", "show", tmp_path / "study.toml")
        assert (code, errors.count("\n")) == (2, 1)
        assert not Path("executed").exists()
        assert "'evil'" in errors


def test_links_are_not_followed_out_of_a_folder(tmp_path, someone_else):
    run(tmp_path / "run", until=250)
    outside = tmp_path / "precious.txt"
    outside.write_text("precious " * 10_000)
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(outside)
    someone_else()
    with pytest.raises(UserError, match=r"metrics\.jsonl is a link in a run that you did not"):
        opening.reopen(tmp_path / "run")
    assert outside.read_text() == "precious " * 10_000


def test_a_policy_is_the_same_whoever_saves_it(population, tmp_path, someone_else):
    population.policy.save(tmp_path / "one.safetensors")
    someone_else()
    Policy.load(tmp_path / "one.safetensors").save(tmp_path / "two.safetensors")
    files = [(tmp_path / f"{name}.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    assert "signature" not in json.dumps(Policy.load(tmp_path / "one.safetensors").about)


def test_a_run_of_someone_else_is_not_sent_to_the_cluster_that_it_names(tmp_path, someone_else):
    run(tmp_path / "run", until=250, shards=2)
    config = read_config(tmp_path / "run")
    changed = {**config, "engine": "ray", "address": "10.11.12.13:6379"}
    write_config(tmp_path / "run", changed)
    someone_else()
    with pytest.raises(UserError, match=r"names a cluster \(10\.11\.12\.13:6379\)"):
        opening.reopen(tmp_path / "run")
