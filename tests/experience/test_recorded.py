"""Recorded transitions: what fits an environment, what is refused, and the way back."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import make_env
from p3s.errors import UserError
from p3s.experience.episode_links import NONE
from p3s.experience.recorded import Recorded, as_data, as_recorded
from p3s.experience.rows import fields
from p3s.types import ObservationSpec
from tests.goal_worlds import Reach


class World(gymnasium.Env):
    """An environment of these spaces, for its shapes."""

    def __init__(self, observations: spaces.Space, actions: spaces.Space) -> None:
        self.observation_space, self.action_space = observations, actions


def world(observations: spaces.Space, actions: spaces.Space | None = None):
    actions = spaces.Box(np.array([-2, 0]), np.array([2, 10])) if actions is None else actions
    return make_env(partial(World, observations, actions))


VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)
COUNT = 5


def recorded(**other) -> Recorded:
    """Five steps of an environment with three numbers and two actions, the last of an episode."""
    seen = np.arange(18, dtype=np.float32).reshape(6, 3)
    own = {
        "observations": seen[:-1],
        "actions": np.linspace([-2, 0], [2, 10], COUNT),
        "rewards": np.arange(COUNT),
        "next_observations": seen[1:],
        "terminations": np.arange(COUNT) == COUNT - 1,
        "truncations": np.zeros(COUNT, bool),
    }
    return Recorded(**{**own, **other})


class TestRows:
    def test_a_vector_and_actions_in_their_own_range(self):
        data = as_data(recorded(), world(VECTOR), "x.npz")
        view = fields(data.rows, data.spec)
        assert view["observation"].tolist() == recorded().observations.tolist()
        assert view["action"].tolist() == [[x, x] for x in (-1, -0.5, 0, 0.5, 1)]
        assert view["reward"].tolist() == [0, 1, 2, 3, 4]
        assert view["discount"].tolist() == [1, 1, 1, 1, 0]
        assert data.following.tolist() == [1, 2, 3, 4, NONE]

    def test_steps_follow_each_other_where_one_begins_as_the_other_ends(self):
        seen = recorded().observations.copy()
        seen[2] = 99
        cut = np.arange(COUNT) == 3
        data = as_data(recorded(observations=seen, truncations=cut), world(VECTOR), "x.npz")
        assert data.following.tolist() == [1, NONE, 3, NONE, NONE]
        assert fields(data.rows, data.spec)["discount"].tolist() == [1, 1, 1, 1, 0]

    def test_discrete_actions_count_from_their_start(self):
        env = world(VECTOR, spaces.Discrete(3, start=4))
        data = as_data(recorded(actions=np.array([4, 5, 6, 5, 4])), env, "x.npz")
        assert fields(data.rows, data.spec)["action"][:, 0].tolist() == [0, 1, 2, 1, 0]

    def test_structured_observations_as_the_environment_has_them_or_flat(self):
        env = make_env(Reach)
        names = ("observation", "achieved_goal", "desired_goal")
        seen = {name: np.full((COUNT, 2), k, np.float64) for k, name in enumerate(names)}
        actions = np.zeros((COUNT, 2), np.float32)
        given = recorded(observations=seen, next_observations=seen, actions=actions)
        data = as_data(given, env, "minari:x")
        assert fields(data.rows, data.spec)["observation"].tolist() == [[1, 1, 2, 2, 0, 0]] * COUNT
        flat = fields(data.rows, data.spec)["observation"]
        again = as_data(given._replace(observations=flat, next_observations=flat), env, "x.npz")
        assert np.array_equal(again.rows, data.rows)

    @pytest.mark.parametrize("count", [1, COUNT])
    def test_numbers_of_a_discrete_observation(self, count):
        env = world(spaces.Discrete(3, start=1))
        seen = np.array([1, 2, 3, 2, 1])[:count]
        given = recorded(observations=seen, next_observations=seen)
        data = as_data(Recorded(*(part[:count] for part in given)), env, "x.npz")
        found = fields(data.rows, data.spec)["observation"]
        assert found.tolist() == np.eye(3)[seen - 1].tolist()

    def test_images_stay_bytes(self):
        env = world(spaces.Box(0, 255, (8, 9), np.uint8))
        seen = np.arange(COUNT * 72, dtype=np.uint8).reshape(COUNT, 8, 9)
        data = as_data(recorded(observations=seen, next_observations=seen), env, "x.npz")
        assert data.spec.observation == ObservationSpec((8, 9, 1), "uint8")
        assert np.array_equal(fields(data.rows, data.spec)["observation"][..., 0], seen)


def first(count: int) -> dict:
    return {name: part[:count] for name, part in recorded()._asdict().items()}


def changed(name: str, value: float, place: tuple[int, ...]) -> dict:
    array = np.array(getattr(recorded(), name), np.float64)
    array[place] = value
    return {name: array}


class TestRefused:
    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (first(0), "it holds no transitions"),
            ({"observations": np.zeros((5, 4))}, r"observations are float64\[5, 4\]; of World"),
            ({"observations": np.zeros((4, 3))}, r"would be float32\[5, 3\]"),
            ({"next_observations": np.zeros((5, 3), complex)}, "next_observations are complex128"),
            (changed("observations", np.nan, (2, 1)), r"observations\[2, 1\] is nan, not a finite"),
            (changed("next_observations", 1e39, (0, 2)), r"next_observations\[0, 2\] is 1e\+39"),
            ({"observations": {"a": np.zeros((5, 3))}}, "observations are of several parts"),
            (changed("rewards", -np.inf, (4,)), r"rewards\[4\] is -inf"),
            ({"rewards": np.zeros((5, 1))}, r"rewards are float64\[5, 1\], not a number each"),
            ({"rewards": np.array(1.0)}, r"rewards are float64\[\], not a number each"),
            ({"observations": np.array(1.0)}, r"observations are float64\[\]; of World"),
            ({"actions": np.array(1.0)}, r"actions are float64\[\]; of World"),
            ({"rewards": np.array(["a"] * 5)}, "rewards are <U1"),
            ({"terminations": np.zeros(5)}, r"terminations are float64\[5\], not a truth value"),
            ({"truncations": np.zeros(4, bool)}, r"truncations are bool\[4\]"),
            (changed("actions", 2.1, (3, 0)), r"actions\[3, 0\] is 2.1; World takes -2 to 2"),
            (changed("actions", -1, (0, 1)), r"actions\[0, 1\] is -1; World takes 0 to 10"),
            (changed("actions", np.nan, (0, 1)), r"actions\[0, 1\] is nan"),
            ({"actions": np.zeros(5)}, r"would be numbers of shape \[5, 2\]"),
            ({"actions": np.zeros((5, 2), bool)}, "actions are bool"),
        ],
    )
    def test_one_line_names_the_part(self, other, message):
        with pytest.raises(UserError, match=rf"^x\.npz: .*{message}") as caught:
            as_data(recorded(**other), world(VECTOR), "x.npz")
        assert caught.value.field == "data"
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            (np.array([0, 1, 2, 3, 0]), r"actions\[3\] is 3; World takes 0 to 2"),
            (np.array([0, 1, 2, -1, 0]), r"actions\[3\] is -1"),
            (np.zeros(5), r"actions are float64\[5\]; of World they would be whole numbers"),
        ],
    )
    def test_discrete_actions_that_are_none(self, actions, message):
        with pytest.raises(UserError, match=message):
            as_data(recorded(actions=actions), world(VECTOR, spaces.Discrete(3)), "x.npz")

    def test_a_part_of_a_structured_observation(self):
        names = ("observation", "achieved_goal", "desired_goal")
        seen = {name: np.zeros((COUNT, 2)) for name in names}
        wrong = {**seen, "achieved_goal": np.full((COUNT, 2), np.nan)}
        actions = np.zeros((COUNT, 2), np.float32)
        given = recorded(observations=wrong, next_observations=seen, actions=actions)
        message = r"observations\.achieved_goal\[0, 0\] is nan, not a finite number"
        with pytest.raises(UserError, match=message):
            as_data(given, make_env(Reach), "minari:x")

    def test_images_of_another_type(self):
        env = world(spaces.Box(0, 255, (8, 9), np.uint8))
        seen = np.zeros((COUNT, 8, 9), np.float32)
        with pytest.raises(UserError, match=r"observations are float32\[5, 8, 9"):
            as_data(recorded(observations=seen, next_observations=seen), env, "x.npz")

    def test_a_rounded_action_is_none_of_it(self):
        data = as_data(recorded(**changed("actions", 2.00001, (3, 0))), world(VECTOR), "x.npz")
        assert fields(data.rows, data.spec)["action"].max() == 1


class TestFromAReplay:
    """Rows of two copies, the first of which begins anew after its second step."""

    def rows(self, in_turns: bool) -> np.ndarray:
        env = world(VECTOR)
        one, two, three = (
            [[k, k, k] for k in ks] for ks in ((0, 1, 2), (10, 11), (20, 21, 22, 23))
        )
        order = {
            True: [(one, 0), (three, 0), (one, 1), (three, 1), (two, 0), (three, 2)],
            False: [(three, 0), (three, 1), (one, 0), (three, 2), (one, 1), (two, 0)],
        }[in_turns]
        seen, then = ([own[k + late] for own, k in order] for late in (0, 1))
        count = len(order)
        given = Recorded(
            np.array(seen, np.float32),
            np.tile([0, 5], (count, 1)),
            np.array(seen)[:, 0],
            np.array(then, np.float32),
            np.zeros(count, bool),
            np.zeros(count, bool),
        )
        return as_data(given, env, "x.npz").rows

    @pytest.mark.parametrize("in_turns", [True, False])
    def test_steps_come_in_the_order_of_their_episodes(self, in_turns):
        found = as_recorded(self.rows(in_turns), world(VECTOR), 2, in_turns)
        order = [0, 1, 20, 21, 22, 10] if in_turns else [20, 21, 22, 0, 1, 10]
        assert found.rewards.tolist() == order
        last = {1, 22, 10}
        assert found.truncations.tolist() == [reward in last for reward in order]
        assert not found.terminations.any()
        assert found.actions.tolist() == [[0, 5]] * 6

    def test_there_and_back(self):
        env = world(VECTOR)
        there = as_data(recorded(), env, "x.npz")
        back = as_recorded(there.rows, env, 1, True)
        for name, part in recorded()._asdict().items():
            assert np.allclose(getattr(back, name), part), name
        assert np.array_equal(as_data(back, env, "x.npz").rows, there.rows)
