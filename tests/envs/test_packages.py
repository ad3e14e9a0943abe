"""Ids from other packages, and errors without a message."""

from __future__ import annotations

import re

import gymnasium
import pytest

from p3s.envs import make_env, packages
from p3s.errors import UserError


@pytest.mark.parametrize(
    ("env_id", "module", "install"),
    [
        ("FetchReach-v4", "gymnasium_robotics", "gymnasium-robotics"),
        ("PointMaze_UMaze-v3", "gymnasium_robotics", "gymnasium-robotics"),
        ("ALE/Pong-v5", "ale_py", "ale-py"),
        ("PongNoFrameskip-v4", "ale_py", "ale-py"),
        ("BabyAI-GoToRedBall-v0", "minigrid", "minigrid"),
        ("dm_control/cartpole-swingup-v0", "shimmy", "'shimmy[dm-control]'"),
        ("highway-fast-v0", "highway_env", "highway-env"),
        ("PandaPickAndPlace-v3", "panda_gym", "panda-gym"),
    ],
)
class TestKnownPackages:
    def test_a_bare_id(self, env_id, module, install, monkeypatch):
        found = set()
        monkeypatch.setattr(packages, "find_spec", lambda name: name in found or None)
        what = install.strip("'")
        expected = (
            f"unknown environment {env_id!r}: it comes with {what}, so give {module}:{env_id}"
        )
        with pytest.raises(UserError, match=re.escape(f"{expected} (pip install {install})")):
            make_env(env_id)
        found.add(module)
        with pytest.raises(UserError) as caught:
            make_env(env_id)
        assert str(caught.value) == expected

    def test_with_its_module(self, env_id, module, install):
        package = packages.package_of(f"{module}:{env_id}")
        assert package is not None
        if not package.is_installed:
            with pytest.raises(UserError, match=re.escape(f"pip install {install}")):
                make_env(f"{module}:{env_id}")


def test_other_ids_get_similar_ones():
    with pytest.raises(UserError, match="did you mean Hopper-v5"):
        make_env("Hoper-v5")
    assert packages.package_of("mine:FetchCoffee-v0") is None
    known = [spec.id for spec in gymnasium.registry.values() if spec.namespace is None]
    assert [env_id for env_id in known if packages.package_of(env_id) is not None] == []


def test_an_error_without_a_message_says_where(tmp_path, monkeypatch):
    (tmp_path / "asserting.py").write_text(
        "import gymnasium\n"
        "def make(rows):\n"
        "    assert rows > 3\n"
        "gymnasium.register('Asserts-v0', make, kwargs={'rows': 2})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    expected = r"cannot be made: AssertionError at .*/asserting.py:3: assert rows > 3$"
    with pytest.raises(UserError, match=expected):
        make_env("asserting:Asserts-v0")
    del gymnasium.registry["Asserts-v0"]
