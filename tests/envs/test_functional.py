"""Functional environments as ordinary ones: Gymnasium's own by name, and one's own objects."""

from __future__ import annotations

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from p3s.envs import functional_of, make_env, parse_name
from p3s.envs.copies import LocalCopies
from p3s.envs.on_host import OnHost
from p3s.envs.state import capture, needs_pickle, restore, uncaptured
from p3s.errors import UserError
from p3s.runs.trust import modules_in
from tests.functional_worlds import MASS, STEP_NUMBERS, point_mass, switch

PENDULUM, CART_POLE = "func:phys2d/Pendulum-v0", "func:phys2d/CartPole-v1"


class TestOnHost:
    @pytest.mark.parametrize("ends", STEP_NUMBERS)
    def test_ends_of_episodes_are_kept_apart(self, ends: str):
        env = make_env(lambda: OnHost(STEP_NUMBERS[ends]))
        observation, _ = env.reset(seed=0)
        seen = [observation[0]]
        for _ in range(3):
            observation, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
            seen.append(observation[0])
            assert reward == observation[0]
        assert seen == [0, 1, 2, 3]
        assert (terminated, truncated) == (ends == "terminated", ends != "terminated")

    def test_an_episode_follows_from_its_seed(self):
        first, second = (make_env(point_mass) for _ in range(2))
        for seed, same in ((3, True), (4, False)):
            ours, theirs = first.reset(seed=3)[0], second.reset(seed=seed)[0]
            assert np.array_equal(ours, theirs) == same
        action = np.array([0.3], np.float32)
        first.reset(seed=5), second.reset(seed=5)
        for _ in range(5):
            assert np.array_equal(first.step(action)[0], second.step(action)[0])

    def test_actions_are_those_of_its_own_space(self):
        env = make_env(switch)
        observation, _ = env.reset(seed=0)
        for _ in range(5):
            lit = int(observation.argmax())
            observation, reward, *_ = env.step(lit)
            assert reward == 1.0
        env = make_env(point_mass)
        env.reset(seed=0)
        before = env.unwrapped._state
        after, *_ = env.step(np.array([0.5], np.float32))
        key = jax.random.fold_in(jax.random.key(0), 1)
        np.testing.assert_allclose(after, MASS.step(before, np.array([1.0]), key)[1], rtol=1e-6)

    def test_its_state_is_captured_as_plain_numbers(self):
        env, other = make_env(point_mass), make_env(point_mass)
        left_out = uncaptured(lambda: make_env(point_mass), 0)
        assert left_out is not None
        env.reset(seed=1), other.reset(seed=2)
        env.step(np.zeros(1, np.float32))
        state = capture(env, left_out)
        assert not needs_pickle(state)
        restore(other, state)
        for _ in range(25):
            ours, theirs = (e.step(np.ones(1, np.float32)) for e in (env, other))
            assert np.array_equal(ours[0], theirs[0])
            assert ours[1:4] == theirs[1:4]
        assert LocalCopies(lambda: make_env(point_mass), 1, 0).exact_resume

    @pytest.mark.filterwarnings("ignore:.*WARN")
    def test_gymnasiums_own_checker_is_content(self):
        check_env(OnHost(MASS), skip_render_check=True)

    def test_it_says_that_it_cannot_be_drawn(self):
        with pytest.raises(UserError, match="mass cannot be drawn: it has no pictures"):
            OnHost(MASS, "mass", "rgb_array")


class TestDelay:
    @pytest.mark.parametrize(
        ("delay", "paid"), [(2, [0, 3, 3]), ("end", [0, 0, 6]), (1, [1, 2, 3])]
    )
    @pytest.mark.parametrize("ends", STEP_NUMBERS)
    def test_rewards_are_paid_late_and_it_stays_functional(self, ends: str, delay, paid: list):
        env = make_env(lambda: OnHost(STEP_NUMBERS[ends]), delay)
        assert functional_of(env.env) is not None
        for _ in range(2):
            env.reset(seed=0)
            assert [env.step(np.zeros(2, np.float32))[1] for _ in range(3)] == paid


class TestByName:
    def test_made_with_gymnasiums_time_limit(self):
        pytest.importorskip("flax")
        env = make_env(PENDULUM)
        assert functional_of(env.env).step_limit == 200
        assert str(env.env_spec) == "float32 observations of 3 and 1 action dimensions"
        env.reset(seed=0)
        ends = [env.step(np.zeros(1, np.float32))[2:4] for _ in range(200)]
        assert ends == [(False, False)] * 199 + [(False, True)]

    def test_as_gymnasiums_own_pendulum(self):
        """The same physics from the same state: the two differ in nothing but precision."""
        pytest.importorskip("flax")
        ours, theirs = make_env(PENDULUM), gymnasium.make("Pendulum-v1").unwrapped
        ours.reset(seed=3), theirs.reset(seed=3)
        theirs.state = np.asarray(ours.unwrapped._state, np.float64)
        for push in np.linspace(-1, 1, 20, dtype=np.float32):
            seen, reward, *_ = ours.step(np.array([push]))
            expected, paid, *_ = theirs.step(np.array([2 * push]))
            np.testing.assert_allclose(seen, expected, atol=1e-4)
            assert reward == pytest.approx(paid, abs=1e-3)

    def test_arguments_are_the_environments(self):
        pytest.importorskip("flax")
        env = make_env(parse_name(CART_POLE, arguments={"max_episode_steps": 7}))
        assert functional_of(env.env).step_limit == 7
        assert make_env(CART_POLE).env.functional is make_env(CART_POLE).env.functional

    def test_it_renders(self):
        pytest.importorskip("flax"), pytest.importorskip("pygame")
        env = make_env(PENDULUM, render_mode="rgb_array")
        env.reset(seed=0)
        assert env.render().shape == (400, 600, 3)
        with pytest.raises(UserError, match="has no window: give --video"):
            make_env(PENDULUM, render_mode="human")

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("func:phys2d/Pendulum-v9", "cannot be made: VersionNotFound"),
            ("func:phys2d/Pendlum-v0", "did you mean func:phys2d/Pendulum-v0"),
            ("func:Pendulum-v1", "Pendulum-v1 is not a functional environment: .* func:phys2d/"),
        ],
    )
    def test_unknown_names(self, name: str, message: str):
        with pytest.raises(UserError, match=message):
            make_env(name)

    def test_a_prefix_is_no_module_to_trust(self):
        assert modules_in({"id": PENDULUM, "kwargs": {}}) == []
        assert modules_in({"id": "mine:Env-v0"}) == ["mine"]

    def test_it_has_the_steps_and_algorithm_of_its_family(self):
        name = parse_name(CART_POLE)
        assert (name.family, name.episode_length) == ("CartPole", 500)
