"""Environments of other packages and of one's own, recognized by what they have."""

from __future__ import annotations

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from p3s.envs import functional_of, make_env
from p3s.envs.device_copies import DeviceCopies
from p3s.envs.functional_gymnax import as_gymnasium
from p3s.envs.functional_kinds import as_functional
from p3s.envs.workers import make_copies
from p3s.errors import UserError
from tests.functional_styles import (
    LENGTH,
    BraxStyle,
    FuncStyle,
    GymnaxBox,
    GymnaxDiscrete,
    GymnaxSpaces,
    GymnaxStyle,
    GymnaxWrapper,
    OldGymnaxStyle,
)
from tests.functional_worlds import StepNumber
from tests.helpers import Counter

STYLES = {
    "own": lambda terminates: StepNumber(LENGTH, "terminated" if terminates else "limit"),
    "func": FuncStyle,
    "brax": BraxStyle,
    "brax in a time limit": lambda terminates: BraxStyle(terminates, truncates=not terminates),
    "gymnax": GymnaxStyle,
    "gymnax with parameters": lambda terminates: (e := GymnaxStyle(terminates), e.default_params),
    "gymnax before 1.0": OldGymnaxStyle,
}
WRAPPED = {"gymnax": GymnaxStyle, "gymnax before 1.0": OldGymnaxStyle}


def play(make) -> tuple[list[float], list[float], tuple[bool, bool]]:
    """Observations, rewards, and how the first episode ended."""
    env = make_env(make)
    observation, _ = env.reset(seed=0)
    seen, paid = [float(observation[0])], []
    for _ in range(LENGTH):
        observation, reward, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
        seen.append(float(observation[0]))
        paid.append(reward)
        if terminated or truncated:
            break
    return seen, paid, (terminated, truncated)


@pytest.mark.parametrize("terminates", [True, False])
class TestEveryStyle:
    @pytest.mark.parametrize("style", STYLES)
    def test_the_end_of_an_episode_is_the_true_one(self, style: str, terminates: bool):
        seen, paid, ends = play(lambda: STYLES[style](terminates))
        assert (seen, paid) == ([0, 1, 2, 3], [1, 2, 3])
        assert ends == (terminates, not terminates)

    @pytest.mark.parametrize("style", WRAPPED)
    def test_a_wrapper_is_not_bypassed(self, style: str, terminates: bool):
        seen, _, ends = play(lambda: GymnaxWrapper(WRAPPED[style](terminates)))
        # Before gymnax 1.0 the final observation is lost in a termination, where none is needed.
        last = 0 if terminates and style != "gymnax" else -3
        assert (seen, ends) == ([0, -1, -2, last], (terminates, not terminates))


class TestAsFunctional:
    def test_states_have_definite_types(self):
        env = as_functional(GymnaxStyle())
        state, _ = env.reset(jax.random.key(0))
        assert (state.time.dtype, state.time.weak_type) == (np.int32, False)
        after = env.step(state, jnp.zeros(2), jax.random.key(1)).state
        assert (after.time.dtype, after.time.weak_type) == (np.int32, False)

    def test_the_state_that_is_given_is_not_written_to(self):
        env = as_functional(BraxStyle())
        state, _ = env.reset(jax.random.key(0))
        env.step(state, jnp.zeros(2), jax.random.key(1))
        assert int(state.info["steps"]) == 0

    def test_of_named_observations_the_policy_sees_the_state(self):
        env = make_env(lambda: BraxStyle(names=("state", "privileged_state")))
        assert env.env_spec.observation.shape == (1,)
        env = make_env(lambda: BraxStyle(names=("near", "far")))
        assert env.env_spec.observation.shape == (2,)
        env.reset(seed=0)
        assert env.step(np.zeros(2, np.float32))[0].tolist() == [1, 1]

    def test_it_is_made_once_in_a_process(self):
        made = []

        def make():
            made.append(BraxStyle())
            return made[-1]

        first, second = make_env(make), make_env(make)
        assert functional_of(first.env) is functional_of(second.env)
        assert len(made) == 1

    @pytest.mark.parametrize(
        "other", [Counter(), gymnasium.make_vec("CartPole-v1", 2), "text", 3, (1, 2), object()]
    )
    def test_others_are_not(self, other):
        assert as_functional(other) is None

    def test_spaces_of_gymnax(self):
        box = GymnaxBox(-1.0, np.ones(2), (2,), jnp.float32)
        assert as_gymnasium(box) == gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        both = {"a": box, "b": GymnaxDiscrete(3)}
        assert as_gymnasium(GymnaxSpaces(both))["b"] == gymnasium.spaces.Discrete(3)
        assert as_gymnasium(GymnaxSpaces(tuple(both.values())))[0] == as_gymnasium(box)
        with pytest.raises(UserError, match="a str is no space that p3s knows"):
            as_gymnasium("box")


class TestActions:
    def test_a_number_of_a_place_is_seen_as_a_vector(self):
        class Grid(GymnaxStyle):
            def observation_space(self, params):
                return GymnaxDiscrete(5)

        env = make_env(Grid)
        env.reset(seed=0)
        assert env.step(np.zeros(2, np.float32))[0].tolist() == [0, 1, 0, 0, 0]

    def test_discrete_ones(self):
        class Two(GymnaxStyle):
            actions = GymnaxDiscrete(2)

        env = make_env(Two)
        env.reset(seed=0)
        assert env.env_spec.discrete
        assert env.step(1)[0].tolist() == [1]

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            (GymnaxSpaces((GymnaxDiscrete(2), GymnaxDiscrete(2))), "are Tuple: only Box and Disc"),
            (GymnaxBox(-np.inf, np.inf, (2,), jnp.float32), "have no finite bounds"),
        ],
    )
    def test_those_that_cannot_be_learned(self, actions, message: str):
        class Others(GymnaxStyle):
            pass

        Others.actions = actions
        with pytest.raises(UserError, match=f"actions of Others {message}"):
            make_env(Others)


@pytest.mark.parametrize("style", STYLES)
def test_a_truncated_transition_stores_the_true_final_observation(style: str, capsys):
    """And its target bootstraps from there: r + γ V(s'), where V is the step number."""
    copies = make_copies(partial(make_env, lambda: STYLES[style](False)), range(2), 0)
    assert isinstance(copies, DeviceCopies)
    copies.start()
    for count in [*range(LENGTH)] * 2:
        steps = copies.step(np.zeros((2, 2), np.float32), np.arange(2)).transitions
        assert steps.observation.tolist() == [[count]] * 2
        assert steps.next_observation.tolist() == [[count + 1]] * 2
        target = steps.reward + 0.5 * steps.discount * steps.next_observation[:, 0]
        assert target.tolist() == [1.5 * (count + 1)] * 2
    # Brax's style keeps its key, so its episodes may differ later.
    told = "episodes of the environment start alike" in capsys.readouterr().err
    assert told == (not style.startswith("brax"))
