"""Environments as the learners see them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import Adapter, make_env, with_stacking
from p3s.envs.state import uncaptured
from p3s.errors import UserError
from p3s.types import ObservationSpec
from tests.helpers import Counter


class TestAdapter:
    def test_actions_are_affine(self):
        inner = Counter(low=-3.0, high=5.0)
        env = Adapter(inner)
        env.reset()
        for action in ([-1, -1], [1, 1], [0, 0.5], [-2, 2]):
            env.step(np.array(action, np.float32))
        assert np.array(inner.actions).tolist() == [[-3, -3], [5, 5], [1, 3], [-3, 5]]
        assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)

    @pytest.mark.parametrize(
        ("space", "size"),
        [
            (spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 1, (2, 2))}), 7),
            (spaces.Tuple([spaces.Box(0, 1, (2,)), spaces.MultiBinary(3)]), 5),
            (spaces.Box(0, 255, (2, 3), np.float32), 6),
            (spaces.Box(0, 255, (5,), np.uint8), 5),
            (spaces.Box(0, 255, (2, 2, 2, 2), np.uint8), 16),
            (spaces.Dict({"picture": spaces.Box(0, 255, (2, 3), np.uint8)}), 6),
        ],
    )
    def test_observations_are_flattened(self, space, size):
        env = Adapter(Counter(observation_space=space))
        observation, _ = env.reset(seed=0)
        assert (observation.shape, observation.dtype) == ((size,), np.float32)
        assert env.env_spec.observation_size == size

    @pytest.mark.parametrize(
        ("shape", "seen"), [((4, 6, 3), (4, 6, 3)), ((3, 6, 6), (3, 6, 6)), ((4, 6), (4, 6, 1))]
    )
    def test_images_stay_bytes(self, shape, seen):
        """Greyscale images get a channel axis."""
        space = spaces.Box(0, 255, shape, np.uint8)
        inner = Counter(observation_space=space)
        env = Adapter(inner)
        space.seed(0)
        expected = space.sample()
        inner._observe = lambda: expected
        for observation in (env.reset(seed=0)[0], env.step(np.zeros(2, np.float32))[0]):
            assert (observation.shape, observation.dtype) == (seen, np.uint8)
            assert np.array_equal(observation.reshape(shape), expected)
        assert env.env_spec.observation == ObservationSpec(seen, "uint8")
        assert env.env_spec.observation.is_image
        assert env.observation_space == spaces.Box(0, 255, seen, np.uint8)

    def test_unbounded_actions(self):
        with pytest.raises(UserError, match="no finite bounds"):
            Adapter(Counter(low=-np.inf, high=np.inf))

    def test_callable(self):
        assert make_env(lambda: Counter()).env_spec.action_size == 2
        with pytest.raises(UserError, match=r"a gymnasium\.Env or a functional env.*, not int"):
            make_env(lambda: 3)  # type: ignore[arg-type, return-value]

    def test_module_id(self):
        assert make_env("gymnasium:Pendulum-v1").env_spec.observation_size == 3


class TestSeveralObservations:
    """The newest first; before the first one of an episode there is that one again."""

    def test_vectors(self):
        env = Adapter(Counter(length=3), num_stacked_observations=3)
        idle = np.zeros(2, np.float32)
        for _ in range(2):
            assert env.reset()[0].tolist() == [0, 0, 0]
            shown = [env.step(idle)[0].tolist() for _ in range(3)]
            assert shown == [[1, 0, 0], [2, 1, 0], [3, 2, 1]]
        assert env.env_spec.observation == ObservationSpec((3,))
        assert env.observation_space.shape == (3,)

    def test_of_an_environment_that_reuses_its_memory(self):
        class Reusing(Counter):
            memory = np.zeros(1, np.float32)

            def _observe(self):
                self.memory[0] = self.count
                return self.memory

        env = Adapter(Reusing(), num_stacked_observations=2)
        assert env.reset()[0].tolist() == [0, 0]
        idle = np.zeros(2, np.float32)
        assert [env.step(idle)[0].tolist() for _ in range(2)] == [[1, 0], [2, 1]]

    def test_images_are_joined_by_their_channels(self):
        inner = Counter(observation_space=spaces.Box(0, 255, (4, 6, 3), np.uint8))
        env, shown = Adapter(inner, num_stacked_observations=2), []
        inner._observe = lambda: np.full((4, 6, 3), inner.count, np.uint8)
        for observation in (env.reset()[0], env.step(np.zeros(2, np.float32))[0]):
            assert observation.dtype == np.uint8
            shown.append(observation[0, 0].tolist())
        assert shown == [[0] * 6, [1, 1, 1, 0, 0, 0]]
        assert env.env_spec.observation == ObservationSpec((4, 6, 6), "uint8")

    def test_they_are_part_of_the_captured_state(self):
        assert uncaptured(with_stacking(lambda: make_env("Pendulum-v1"), 2), 0) is not None

    def test_the_same_environment_with_another_number(self):
        def make():
            return Adapter(Counter())

        assert with_stacking(make, 1) is make
        assert with_stacking(with_stacking(make, 3), 2)().env_spec.observation_size == 2


class TestWrongEnvironments:
    def test_observations_that_do_not_fit_their_space(self):
        class Wrong(Counter):
            def _observe(self):
                return np.zeros(1, np.float32)

        env = make_env(partial(Wrong, observation_space=spaces.Box(-1, 1, (2,), np.float32)))
        with pytest.raises(ValueError, match=r"shape \(1,\), its space \(2,\)"):
            env.reset(seed=0)

    def test_an_instance_instead_of_a_callable(self):
        with pytest.raises(UserError, match="give a callable"):
            make_env(Counter())
