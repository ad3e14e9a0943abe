"""Policies pushed to a stand-in of the Hub, and fetched from it, by the real client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest

import p3s
from p3s.cli import main
from p3s.envs import EnvName
from p3s.policies.hub import HubName
from p3s.policies.policy import Policy
from p3s.runs.checksums import with_checksum
from p3s.sharing.bundle import FILES
from p3s.sharing.card import card_text
from tests.helpers import call, run
from tests.helpers_hub import TOKEN, Hub, serving

NAME = "somebody/pendulum"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A short run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(folder)
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    """The stand-in, to which the client in this process talks."""
    constants = huggingface_hub.constants
    with serving() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
        template = served.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


@pytest.fixture
def pushed(hub, run_folder, capsys) -> Hub:
    """The stand-in with a policy in it."""
    code, output, errors = push(capsys, run_folder, NAME)
    assert (code, errors) == (0, "")
    assert f"pushed to {hub.endpoint}/{NAME}" in output
    return hub


def push(capsys, *arguments) -> tuple[int, str, str]:
    """One push of few episodes, without a film."""
    return call(capsys, "push", *arguments, "--episodes", "2", "--no-video")


class TestPush:
    def test_what_is_there(self, pushed, run_folder):
        files = pushed.files(NAME)
        assert set(files) == {*FILES} - {"replay.mp4"}
        assert files["policy.safetensors"] == (run_folder / "policy-best.safetensors").read_bytes()
        assert files["curve.png"].startswith(b"\x89PNG")
        results = json.loads(files["results.json"])
        returns = p3s.evaluate(p3s.load(run_folder), episodes=2)
        assert results["returns"] == returns.tolist()
        assert results["mean_reward"] == pytest.approx(returns.mean())
        assert results["std_reward"] == pytest.approx(returns.std(ddof=1))
        config = json.loads(files["config.json"])
        own = json.loads((run_folder / "config.json").read_text())
        assert config["algorithm_fields"] == own["algorithm_fields"]
        assert "signature" in own
        assert "signature" not in config
        # One commit holds everything, after the empty repository.
        assert len(pushed.repositories[NAME]) == 2
        assert pushed.visibility[NAME] is None

    def test_the_card_is_what_leaderboards_read(self, pushed):
        card = huggingface_hub.ModelCard(pushed.files(NAME)["README.md"].decode())
        data, results = card.data, json.loads(pushed.files(NAME)["results.json"])
        assert data.library_name == "p3s"
        assert {"InvertedPendulum-v5", "reinforcement-learning", "td3"} <= set(data.tags)
        (result,) = data.eval_results
        expected = f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
        assert (result.metric_type, result.metric_value) == ("mean_reward", expected)
        assert result.dataset_name == "InvertedPendulum-v5"
        assert f'p3s.load("hub:{NAME}")' in card.text

    def test_its_three_lines_load_it(self, pushed, capsys):
        code = pushed.files(NAME)["README.md"].decode().split("```")[1].removeprefix("python")
        exec(code, {})
        assert float(capsys.readouterr().out) > 0

    def test_again_takes_away_what_is_no_longer_shared(self, pushed, run_folder, capsys):
        files = pushed.files(NAME)
        files |= {"replay.mp4": b"old", "notes.md": b"own", ".gitattributes": b"*"}
        assert push(capsys, run_folder, NAME, "--last")[0] == 0
        now = pushed.files(NAME)
        assert set(now) == {*FILES, "notes.md", ".gitattributes"} - {"replay.mp4"}
        assert now["policy.safetensors"] == (run_folder / "policy.safetensors").read_bytes()

    def test_private(self, hub, run_folder, capsys):
        assert push(capsys, run_folder, NAME, "--private")[0] == 0
        assert hub.visibility[NAME] == "private"

    def test_dry_run_writes_a_folder_that_loads(self, hub, run_folder, tmp_path, capsys):
        folder = tmp_path / "shared"
        code, output, _ = call(
            capsys, "push", run_folder, NAME, "--episodes", 1, "--dry-run", folder
        )
        assert code == 0
        assert f"wrote {folder}" in output
        assert {file.name for file in folder.iterdir()} == {*FILES}
        assert (folder / "replay.mp4").stat().st_size > 1000
        assert len(p3s.evaluate(p3s.load(folder), episodes=1)) == 1
        assert hub.asked == []
        (folder / "thesis.tex").write_text("")
        code, _, errors = push(capsys, run_folder, NAME, "--dry-run", folder)
        assert (code, errors) == (2, f"p3s: {folder} holds thesis.tex: give an empty folder\n")


class TestLoad:
    def test_the_same_actions(self, pushed, run_folder):
        observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
        expected = p3s.load(run_folder).predict(observations)[0]
        assert np.array_equal(p3s.load(f"hub:{NAME}").predict(observations)[0], expected)
        # No more than the policy is fetched.
        fetched = [line for line in pushed.asked if "/resolve/" in line]
        assert fetched
        assert all(line.endswith("/policy.safetensors") for line in fetched)

    def test_commands(self, pushed, capsys, tmp_path):
        code, output, _ = call(capsys, "evaluate", f"hub:{NAME}", "--episodes", 1)
        assert code == 0
        assert "best policy: learner" in output
        graph = tmp_path / "policy.onnx"
        assert call(capsys, "export", f"hub:{NAME}", graph)[0] == 0
        assert graph.exists()

    def test_a_revision(self, pushed, run_folder, capsys):
        names = huggingface_hub.HfApi().repo_info(NAME).sha
        assert push(capsys, run_folder, NAME, "--last")[0] == 0
        best, last = p3s.load(f"hub:{NAME}@{names}"), p3s.load(f"hub:{NAME}")
        assert best.to_bytes() == (run_folder / "policy-best.safetensors").read_bytes()
        assert last.to_bytes() == (run_folder / "policy.safetensors").read_bytes()

    def test_from_the_cache_without_a_network(self, pushed, monkeypatch, capsys):
        p3s.load(f"hub:{NAME}")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        assert p3s.load(f"hub:{NAME}").about["environment"]["id"] == "InvertedPendulum-v5"
        assert "this is the policy that was fetched last" in capsys.readouterr().err


def refused(capsys, *arguments) -> str:
    """The one line with which a command ends."""
    code, _, errors = call(capsys, *arguments)
    assert code == 2
    (line,) = errors.splitlines()
    return line


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("hub:pendulum", "'pendulum' is no name on the Hub: give USER/NAME"),
            ("hub:some body/pendulum", "is no name on the Hub"),
            ("hub:somebody/pendulum@", "is no name on the Hub"),
            ("hub:somebody/else", "hub:somebody/else: the Hub has no such repository"),
            (f"hub:{NAME}@v7", f"hub:{NAME}@v7: it has no such branch, tag or commit"),
            ("hub:somebody/bert", "hub:somebody/bert holds no policy of p3s"),
            ("hub:somebody/damaged", "hub:somebody/damaged: "),
        ],
    )
    def test_names_without_a_policy(self, pushed, capsys, name, message):
        policy = pushed.files(NAME)["policy.safetensors"]
        pushed.repositories["somebody/bert"] = [{"model.safetensors": b"..."}]
        pushed.repositories["somebody/damaged"] = [
            {"policy.safetensors": policy[:-1] + bytes([policy[-1] ^ 1])}
        ]
        line = refused(capsys, "evaluate", name)
        assert message in line
        if "damaged" in name:
            assert line.endswith("is damaged: it is not what was written")

    def test_a_foreign_module_is_not_imported(self, pushed, run_folder, capsys):
        policy = Policy.load(run_folder / "policy.safetensors")
        policy.about["environment"]["id"] = "antigravity:Env-v0"
        pushed.files(NAME)["policy.safetensors"] = policy.to_bytes()
        line = refused(capsys, "evaluate", f"hub:{NAME}")
        assert "names a module that you have not imported: 'antigravity'" in line
        assert f"p3s --import antigravity evaluate hub:{NAME}" in line

    def test_no_network(self, hub, run_folder, capsys, monkeypatch):
        with serving() as gone:
            endpoint = gone.endpoint
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        for words in (["push", run_folder, NAME], ["evaluate", f"hub:{NAME}"]):
            line = refused(capsys, *words)
            assert f"hub:{NAME}: the Hub cannot be reached (ConnectError: " in line

    def test_tokens(self, hub, run_folder, capsys, monkeypatch):
        line = refused(capsys, "push", run_folder, "stranger/pendulum", "--episodes", 1)
        assert "hub:stranger/pendulum: the Hub refuses (403): You don't have the rights" in line
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        line = refused(capsys, "push", run_folder, NAME)
        assert "the Hub refuses (401): " in line
        monkeypatch.delenv("HF_TOKEN")
        line = refused(capsys, "push", run_folder, NAME)
        assert line == "p3s: there is no token for the Hub: hf auth login, or set HF_TOKEN"
        assert hub.repositories == {}

    def test_without_the_extra(self, run_folder, capsys, monkeypatch):
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
        for words in (["push", run_folder, NAME], ["evaluate", f"hub:{NAME}"]):
            line = refused(capsys, *words)
            assert line.endswith("needs huggingface_hub: pip install 'p3s[hub]'")

    def test_what_cannot_be_shared(self, hub, run_folder, tmp_path, capsys):
        assert "is not a run" in refused(capsys, "push", tmp_path, NAME)
        unevaluated = Path(shutil.copytree(run_folder, tmp_path / "run"))
        for file in unevaluated.glob("*.safetensors"):
            file.unlink()
        assert "holds no policy yet" in refused(capsys, "push", unevaluated, NAME)
        line = refused(capsys, "push", run_folder, f"{NAME}@main")
        assert line == f"p3s: a policy is pushed to USER/NAME, not to a revision: {NAME}"

    def test_without_evaluations_there_is_no_curve(self, hub, run_folder, tmp_path, capsys):
        folder = Path(shutil.copytree(run_folder, tmp_path / "run"))
        (folder / "evaluations.jsonl").unlink()
        code, _, errors = push(capsys, folder, NAME)
        assert (code, errors) == (0, f"note: no learning curve: {folder} has no evaluations\n")
        assert "curve.png" not in hub.files(NAME)["README.md"].decode()


def test_a_kill_in_mid_upload_leaves_nothing_by_halves(hub, run_folder, tmp_path, capsys):
    """By the client's own settings, in a process of its own."""
    settings = {
        "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path),
    }  # fmt: skip
    words = ["push", run_folder, NAME, "--episodes", "1", "--no-video"]
    hub.hold.set()
    process = subprocess.Popen(
        [sys.executable, "-m", "p3s", *map(str, words)], env={**os.environ, **settings}
    )
    try:
        assert hub.held.wait(100)
    finally:
        process.kill()
        process.wait()
    assert hub.files(NAME) == {}
    assert "holds no policy of p3s" in refused(capsys, "evaluate", f"hub:{NAME}")
    hub.hold.clear()
    assert push(capsys, run_folder, NAME)[0] == 0
    assert p3s.load(f"hub:{NAME}").about["run"]["step"] > 0


def test_a_strangers_words_stay_in_their_place(tmp_path):
    """Whatever an environment is called, it adds no line to the card and no key to its metadata."""
    mean = "`]\n---\n# Free\n<script>alert(1)</script>"
    record = {
        "scheme": "p3s", "algorithm": "td3", "preset": "paper", "steps": 1, "seed": 0,
        "scheme_fields": {}, "versions": ["none"],
    }  # fmt: skip
    results = {
        "environment": EnvName(mean, kwargs={mean: mean}).to_json(), "mean_reward": 1.0,
        "std_reward": 0.0, "n_eval_episodes": 1, "policy": None,
    }  # fmt: skip
    text = card_text(HubName(NAME), with_checksum(record), results, has_curve=False)
    card = huggingface_hub.ModelCard(text)
    assert card.data.to_dict().keys() == {"library_name", "pipeline_tag", "tags", "model-index"}
    assert card.data.tags[0] == mean
    lines = card.text.splitlines()
    assert "# Free" not in lines
    assert "---" not in lines
    assert all(line.count("`") % 2 == 0 for line in lines if not line.startswith("```"))


def test_pushing_needs_two_words(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["push", "run"])
    assert ended.value.code == 2
    assert "USER/NAME" in capsys.readouterr().err
