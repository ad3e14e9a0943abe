"""The state of an environment, captured and put back."""

from __future__ import annotations

import pytest

from p3s.envs import Adapter, make_env
from p3s.envs.state import can_capture
from tests.helpers import Unpicklable


class TestStateCapture:
    @pytest.mark.parametrize(
        "name",
        ["Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5", "Swimmer-v5", "Humanoid-v5",
         "Pendulum-v1", "CartPole-v1", "Delayed Ant-v1"],
    )  # fmt: skip
    def test_exact(self, name):
        assert can_capture(lambda: make_env(name), seed=5)

    def test_one_that_cannot_be_captured_is_found_out(self):
        assert not can_capture(lambda: Adapter(Unpicklable()), seed=5)
