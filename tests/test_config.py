"""Names of fields that have changed: in calls they are pointed out, in files read."""

from __future__ import annotations

import re

import pytest

from p3s.config.run import Config, resolve, resolve_spec
from p3s.config.run_file import read_run_file, run_file_text
from p3s.errors import UserError
from p3s.fields.names import RENAMED

CASES = [
    ("p3s", "td3", "discount", "discount_factor", 0.9),
    ("p3s", "td3", "left_out", "distances_exclude", "new_best"),
    ("p3s", "td3", "log_period", "metrics_period", 50),
    ("sharing", "sac", "normalise_observations", "normalize_observations", True),
    ("rollout", "ppo", "normalise_rewards", "normalize_rewards", False),
    ("p3s", "td3", "num_values", "num_critics", 3),
    ("p3s", "td3", "random_until", "random_steps", "next_thousand"),
    ("p3s", "td3", "record_video", "video_period", 500),
    ("distributed", "td3", "num_copies", "envs_per_learner", 2),
]


def test_every_renamed_field_is_here():
    assert {(old, new) for _, _, old, new, _ in CASES} >= set(RENAMED.items())


@pytest.mark.parametrize(("scheme", "algorithm", "old", "new", "value"), CASES)
class TestRenamed:
    def test_a_call_says_so(self, scheme, algorithm, old, new, value):
        with pytest.raises(UserError) as caught:
            resolve("Pendulum-v1", scheme, algorithm, **{old: value})
        assert str(caught.value) == f"{old} is now called {new}"

    def test_a_file_is_read(self, scheme, algorithm, old, new, value):
        config = resolve("Pendulum-v1", scheme, algorithm, **{new: value})
        written = config.to_json()
        for group in (written, written["scheme_fields"], written["algorithm_fields"]):
            if new in group:
                group[old] = group.pop(new)
        assert Config.from_json(written) == config

    def test_a_run_file_is_read(self, scheme, algorithm, old, new, value, tmp_path):
        config = resolve("Pendulum-v1", scheme, algorithm, **{new: value})
        file = tmp_path / "run.toml"
        text = re.sub(rf"^{new} = ", f"{old} = ", run_file_text(config), flags=re.MULTILINE)
        assert f"\n{old} = " in text
        file.write_text(text)
        found = resolve_spec(read_run_file(file))
        assert (found.scheme, found.options) == (config.scheme, config.options)


def test_a_name_that_never_was():
    for scheme, name in (("p3s", "discont"), ("sharing", "left_out")):
        with pytest.raises(UserError, match=f"unknown field '{name}'"):
            resolve("Pendulum-v1", scheme, **{name: 1})


def test_a_field_of_another_scheme_or_algorithm():
    for name, owner in (("guide_source", "p3s"), ("dueling", "dqn")):
        with pytest.raises(UserError, match=f"{name} is a field of {owner}, not of scheme single"):
            resolve("Pendulum-v1", "single", **{name: 1})


def test_on_policy_algorithms_were_run_by_single():
    config = resolve("Pendulum-v1", "rollout", "ppo")
    assert Config.from_json({**config.to_json(), "scheme": "single"}) == config
