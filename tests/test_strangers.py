"""Files with anything in them: one line and exit code 2, or what they show; never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from campaign.mutations import SCRIPT, header_of, with_header
from p3s.config.options import RunOptions
from p3s.errors import UserError
from p3s.machine import available_cores
from p3s.policies.policy import Policy
from p3s.report.results import read_run
from p3s.report.run_page import render_run
from p3s.runs import opening
from p3s.runs.checkpoints import Checkpoints, step_folders
from p3s.runs.checksums import parse_checked
from tests.helpers import call, run
from tests.synthetic_runs import write_run

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def put(record: dict, choice: int, value) -> dict:
    """The record with another value at one of its keys, or one level deeper."""
    rng, record = random.Random(choice), json.loads(json.dumps(record))
    target = record
    nested = [own for own in record.values() if isinstance(own, dict) and own]
    if nested and choice % 2:
        target = rng.choice(nested)
    target[rng.choice(sorted(target))] = value
    return record


@MANY
@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_refused(data):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_checked(data), dict)


@MANY
@given(st.integers(0, 10_000), ANYTHING)
def test_any_configuration_is_one_or_refused(choice, value):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        write_run(folder, "P3S-TD3", "Hopper-v1", 0, evaluations=3)
        record = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(put(record, choice, value)))
        for use in (opening.load_config, lambda path: render_run(*read_run(path), None)):
            with contextlib.suppress(UserError):
                use(folder)


@MANY
@given(st.integers(0, 10_000), ANYTHING)
def test_any_description_of_a_policy_is_one_or_refused(population, choice, value):
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "policy.safetensors"
        population.policy.save(file)
        header = header_of(file.read_bytes())
        description = json.loads(header["__metadata__"]["p3s"])
        del description["crc32"]
        header["__metadata__"]["p3s"] = json.dumps(put(description, choice, value))
        file.write_bytes(with_header(file.read_bytes(), header))
        with contextlib.suppress(UserError):
            assert Policy.load(file).predict(np.zeros(3))[0].size == 1


@pytest.mark.parametrize("field", ["observation_shape", "hidden_sizes"])
def test_a_policy_takes_no_more_memory_than_its_file(population, tmp_path, field):
    file = tmp_path / "policy.safetensors"
    population.policy.save(file)
    header = header_of(file.read_bytes())
    description = json.loads(header["__metadata__"]["p3s"])
    del description["crc32"]
    (description if field in description else description["fields"])[field] = [2**30]
    description["fields"]["normalize_observations"] = True
    header["__metadata__"]["p3s"] = json.dumps(description)
    file.write_bytes(with_header(file.read_bytes(), header))
    with pytest.raises(UserError, match=r"invalid|too large"):
        Policy.load(file)


def test_a_header_that_claims_much(tmp_path):
    save_file({"a": np.zeros(2, np.float32)}, tmp_path / "policy.safetensors")
    content = (tmp_path / "policy.safetensors").read_bytes()
    header = header_of(content)
    header["a"] = {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}
    (tmp_path / "policy.safetensors").write_bytes(with_header(content, header))
    with pytest.raises(UserError, match="damaged or not a policy file"):
        Policy.load(tmp_path / "policy.safetensors")


class TestCheckpoints:
    @pytest.fixture(scope="class")
    def made(self, tmp_path_factory) -> Path:
        path = tmp_path_factory.mktemp("runs") / "run"
        run(path, until=250)
        return path

    @pytest.fixture
    def folder(self, made, tmp_path) -> Path:
        return Path(shutil.copytree(made, tmp_path / "run"))

    def change(self, folder: Path, name: str, value) -> None:
        for checkpoint in (folder / "checkpoints").iterdir():
            meta = json.loads((checkpoint / "meta.json").read_bytes())
            del meta["crc32"]
            meta[name] = value
            (checkpoint / "meta.json").write_text(json.dumps(meta))

    @pytest.mark.parametrize("name", ["../../config.json", "/dev/zero", "a/../b.bin"])
    def test_files_elsewhere_are_not_read(self, folder, name):
        file = {"bytes": 1, "crc32": 1}
        self.change(folder, "files", {"state.safetensors": file, name: file})
        with pytest.raises(UserError, match="is intact"):
            opening.reopen(folder)

    @pytest.mark.parametrize(
        "replay", [None, {}, {"capacity": 1000}, {"capacity": 1000, "num_added": 500}]
    )
    def test_a_replay_that_is_not_there(self, folder, replay):
        self.change(folder, "replay", replay)
        with pytest.raises(UserError, match=r"replay|rows"):
            opening.reopen(folder)

    def test_a_state_of_something_else(self, folder, capsys):
        checkpoints = Checkpoints(folder / "checkpoints")
        for checkpoint in (folder / "checkpoints").iterdir():
            shutil.rmtree(checkpoint)
        checkpoints.write(100, {"counters": {"total_steps": "x"}}, None)
        code, _, errors = call(capsys, "resume", folder)
        assert (code, errors.count("\n")) == (2, 1)

    def test_a_run_that_would_not_fit_into_memory(self, folder, monkeypatch):
        record = json.loads((folder / "config.json").read_text())
        del record["crc32"]
        record["algorithm_fields"]["hidden_sizes"] = [2**20, 2**20]
        (folder / "config.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match=r"the run takes [\d,.]+ GB of memory"):
            opening.reopen(folder)


@pytest.mark.parametrize("lines", ["seeds = 1000000000000", "[grid]"])
def test_a_study_of_more_cells_than_fit_into_memory(tmp_path, capsys, lines):
    if lines == "[grid]":
        lines = "\n".join([lines, *(f"x{index} = [0, 1, 2, 3]" for index in range(30))])
    study = f'environments = ["Pendulum-v1"]\n{lines}\n[[methods]]\nalgorithm = "td3"\n'
    (tmp_path / "study.toml").write_text(study)
    code, _, errors = call(capsys, "study", "show", tmp_path / "study.toml")
    assert (code, errors.count("\n")) == (2, 1)
    assert "at most 10,000" in errors


def test_a_study_that_is_nested_deeply(tmp_path, capsys):
    (tmp_path / "study.toml").write_text(f"seeds = {'[' * 5000}")
    code, _, errors = call(capsys, "study", "show", tmp_path / "study.toml")
    assert (code, errors.count("\n")) == (2, 1)
    assert "is nested too deeply" in errors


def test_names_do_not_become_markup(tmp_path):
    folder = tmp_path / f"run{SCRIPT.replace('/', '')}"
    write_run(folder, "P3S-TD3", "Hopper-v1", 0, evaluations=3)
    record = json.loads((folder / "config.json").read_text())
    record["environment"]["id"] = record["scheme"] = record["commit"] = SCRIPT
    record["scheme_fields"][SCRIPT] = SCRIPT
    (folder / "config.json").write_text(json.dumps(record))
    page = render_run(*read_run(folder), None)
    assert "alert(1)" in page
    assert SCRIPT not in page


@pytest.mark.timeout(60)
def test_a_run_of_a_billion_critics_is_refused_at_once(tmp_path, capsys):
    path = tmp_path / "run"
    run(path, 200)
    record = json.loads((path / "config.json").read_text())
    del record["crc32"]
    record["algorithm_fields"]["num_critics"] = 10**9
    (path / "config.json").write_text(json.dumps(record))
    code, _, errors = call(capsys, "resume", path)
    assert code == 2
    assert "num_critics must be between 1 and 100" in errors


class TestRunFolders:
    """A folder from someone else, opened with commands that show it."""

    @pytest.fixture
    def folder(self, tmp_path) -> Path:
        write_run(tmp_path / "run", "P3S-TD3", "Hopper-v1", 0, evaluations=3)
        return tmp_path / "run"

    def change(self, folder: Path, **values) -> None:
        record = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**record, **values}))

    def test_links_are_not_written_through(self, folder, tmp_path, capsys):
        (tmp_path / "precious").write_text("mine")
        (folder / ".report.html.tmp").symlink_to(tmp_path / "precious")
        assert call(capsys, "report", folder)[0] == 0
        assert (folder / "report.html").read_text().startswith("<!doctype html>")
        assert (tmp_path / "precious").read_text() == "mine"

    @pytest.mark.timeout(30)
    @pytest.mark.parametrize("name", ["evaluations.jsonl", "lineage.jsonl"])
    def test_pipes_and_devices_are_not_read(self, folder, capsys, name):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        code, _, errors = call(capsys, "report", folder)
        assert (code, errors.count("\n")) == (2, 1)
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        code, _, errors = call(capsys, "report", folder)
        assert (code, errors.count("\n")) == (2, 1)
        assert "not a regular file" in errors

    @pytest.mark.parametrize("command", [["report"], ["watch", "--once"], ["compare"]])
    def test_half_characters_are_refused(self, folder, capsys, command):
        self.change(folder, commit="\ud800")
        code, _, errors = call(capsys, command[0], folder, *command[1:])
        assert (code, errors.count("\n")) == (2, 1)

    @pytest.mark.parametrize("command", [["watch", "--once"], ["compare", "--terminal"]])
    def test_names_do_not_steer_the_terminal(self, folder, capsys, command):
        environment = json.loads((folder / "config.json").read_text())["environment"]
        self.change(folder, environment={**environment, "id": "\x1b]0;owned\x07\x1b[2J"})
        _, out, errors = call(capsys, command[0], folder, *command[1:])
        assert "owned" in out + errors
        assert "\x1b]0" not in out + errors

    @pytest.mark.parametrize("shards", [5, [{"steps_per_second": "x", "waiting": 0}], [{}]])
    def test_shards_that_make_no_sense(self, folder, capsys, shards):
        row = {"step": 1, "steps_per_second": 1.0, "recent_returns": [], "shards": shards}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        assert call(capsys, "watch", folder, "--once")[0] in (0, 2)

    def test_nested_arguments(self, folder, capsys):
        nested: list = []
        for _ in range(700):
            nested = [nested]
        environment = json.loads((folder / "config.json").read_text())["environment"]
        self.change(folder, environment={**environment, "kwargs": {"a": nested}})
        for command in ("resume", "config"):
            code, _, errors = call(capsys, command, folder)
            assert (code, errors.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["cells.json", "references.json", "failures/0.json"])
def test_files_of_a_study_that_are_nested_deeply(own_study, capsys, name):
    if name == "failures/0.json":
        name = (
            f"failures/{json.loads((own_study / 'cells.json').read_text())['cells'][0]['id']}.json"
        )
    (own_study / name).parent.mkdir(exist_ok=True)
    (own_study / name).write_text("[" * 100_000)
    assert call(capsys, "report", own_study)[0] in (0, 2)


@pytest.mark.parametrize(
    "wrapper",
    ["builtins:print", "sys:exit", "os:getcwd", "subprocess:run", "gymnasium:make",
     "os:system('true')", "strange_module:Wrap(a=1)", "gymnasium.wrappers:Autoreset(open('x'))",
     f"gymnasium.wrappers:Autoreset({'[' * 100_000})"],
)  # fmt: skip
def test_a_policy_calls_nothing(population, tmp_path, capsys, wrapper):
    file = tmp_path / "policy.safetensors"
    population.policy.save(file)
    header = header_of(file.read_bytes())
    description = json.loads(header["__metadata__"]["p3s"])
    del description["crc32"]
    description["environment"]["wrappers"] = [wrapper]
    header["__metadata__"]["p3s"] = json.dumps(description)
    file.write_bytes(with_header(file.read_bytes(), header))
    code, _, errors = call(capsys, "evaluate", file, "--episodes", "1")
    assert (code, errors.count("\n")) == (2, 1)


def test_a_policy_sees_no_more_observations_than_it_has(population, tmp_path):
    file = tmp_path / "policy.safetensors"
    population.policy.save(file)
    header = header_of(file.read_bytes())
    description = json.loads(header["__metadata__"]["p3s"])
    del description["crc32"]
    description["num_stacked_observations"] = 4_000_000
    header["__metadata__"]["p3s"] = json.dumps(description)
    file.write_bytes(with_header(file.read_bytes(), header))
    with pytest.raises(UserError, match="num_stacked_observations is missing or invalid"):
        Policy.load(file)


class TestNumbersAndDates:
    def refused(self, capsys, *words) -> str:
        code, _, errors = call(capsys, *words)
        assert (code, errors.count("\n")) == (2, 1)
        return errors

    def test_numbers_that_no_float_holds(self, tmp_path, capsys):
        (tmp_path / "run.toml").write_text(f'env = "Pendulum-v1"\nseed = {"1" * 400}\n')
        (tmp_path / "study.toml").write_text(f'seeds = [{"1" * 400}]\nenvironments = ["A-v0"]\n')
        self.refused(capsys, "train", "Pendulum-v1", "--seed", "1" * 400, "--out", tmp_path / "r")
        self.refused(capsys, "train", "--config", tmp_path / "run.toml")
        self.refused(capsys, "study", "show", tmp_path / "study.toml")

    @pytest.mark.parametrize("line", [f"seed = {'1' * 5000}", "[env_kwargs]\ng = 1979-05-27"])
    def test_what_no_run_can_hold(self, tmp_path, capsys, line):
        (tmp_path / "run.toml").write_text(f'env = "Pendulum-v1"\n{line}\n')
        assert "run.toml" in self.refused(capsys, "train", "--config", tmp_path / "run.toml")


def test_a_stranger_starts_no_more_processes_than_there_are_cores():
    few = opening.with_few_workers(RunOptions(evaluation_workers=3000, env_workers=3000))
    assert few.evaluation_workers == few.env_workers == len(available_cores())
    assert opening.with_few_workers(RunOptions()) == RunOptions()


def test_a_copy_of_a_checkpoint_is_none(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(100, {"counters": {"total_steps": 100}}, None)
    shutil.copytree(tmp_path / "step-000000000100", tmp_path / "step-000000000100.bak")
    assert [path.name for path in step_folders(tmp_path)] == ["step-000000000100"]
    checkpoints.write(200, {"counters": {"total_steps": 200}}, None)
    checkpoints.write(300, {"counters": {"total_steps": 300}}, None)
    assert (tmp_path / "step-000000000100.bak").exists()
