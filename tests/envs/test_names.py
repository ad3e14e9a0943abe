"""Names of environments, the paper's among them."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.envs import make_env, parse_name


class TestNames:
    def test_paper_names(self):
        assert parse_name("Hopper-v1").id == "Hopper-v5"
        walker = parse_name("Walker2d-v1")
        assert (walker.id, walker.kwargs) == ("Walker2d-v5", {"xml_file": "walker2d.xml"})
        assert parse_name("Walker2d-v1", None, {"frame_skip": 2}).kwargs.keys() == {
            "xml_file", "frame_skip",
        }  # fmt: skip
        ant = parse_name("Delayed Ant-v1")
        assert (ant.id, ant.delay, ant.family, ant.is_delayed) == ("Ant-v5", 20, "Ant", True)
        assert "Ant-v5" in ant.note

    def test_others_are_left_alone(self):
        assert parse_name("Pendulum-v1").id == "Pendulum-v1"
        assert parse_name("Pendulum-v1").note is None
        registered = parse_name("p3s/DelayedAnt-v5")
        assert (registered.family, registered.is_delayed) == ("Ant", True)

    @pytest.mark.parametrize("name", ["Hopper-v1", "Delayed HalfCheetah-v1", "p3s/DelayedAnt-v5"])
    def test_made(self, name):
        env = make_env(name)
        observation, _ = env.reset(seed=0)
        assert observation.dtype == np.float32
