"""What a functional environment does wrong is told in one line, before anything is compiled."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from p3s.envs import make_env
from p3s.envs.functional import Outcome
from p3s.errors import UserError
from tests.functional_styles import BraxStyle
from tests.functional_worlds import PointMass
from tests.helpers import call


class Mass(PointMass):
    """The one that the tests break: each of them changes one thing."""

    def step(self, state, action, key: jax.Array) -> Outcome:
        return self.broken(super().step(state, action, key))

    def broken(self, outcome: Outcome):
        return outcome


class Branches(Mass):
    def step(self, state, action, key):
        if state["at"][0] > 0:
            action = -action
        return super().step(state, action, key)


class Named(Mass):
    def reset(self, key):
        state, observation = super().reset(key)
        return {**state, "name": "mass"}, observation


class Host(Mass):
    def step(self, state, action, key):
        return super().step(state, np.asarray(action), key)


class Grows(Mass):
    def broken(self, outcome):
        return outcome._replace(state={**outcome.state, "more": 1})


class Lengthens(Mass):
    def broken(self, outcome):
        return outcome._replace(observation=jnp.zeros(3))


class Rounds(Mass):
    def broken(self, outcome):
        return outcome._replace(observation=jnp.zeros(2, jnp.int32))


class Widens(Mass):
    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Pixels(Mass):
    observation_space = spaces.Box(0, 255, (2,), np.uint8)


class PaysTwice(Mass):
    def broken(self, outcome):
        return outcome._replace(reward=jnp.ones(2))


class FourValues(Mass):
    def broken(self, outcome):
        return outcome[:4]


class OnlyState(Mass):
    def reset(self, key):
        return super().reset(key)[0]


class NoSpace(Mass):
    observation_space = None


class NoLimit(Mass):
    def __init__(self):
        pass


class Zero(Mass):
    def __init__(self):
        super().__init__(step_limit=0)


class Forgets(Mass):
    """What it remembers of a step is in an attribute."""

    last = None

    def reset(self, key):
        state, observation = super().reset(key)
        return state, observation if self.last is None else self.last

    def broken(self, outcome):
        self.last = outcome.observation
        return outcome


class Draws(Mass):
    """Its random numbers are not from its key."""

    def reset(self, key):
        state, observation = super().reset(key)
        return {**state, "at": np.random.uniform(size=2).astype(np.float32)}, observation


class Counts(Mass):
    """Every program that is made of it has another number in it."""

    steps = 0

    def broken(self, outcome):
        self.steps += 1
        return outcome._replace(reward=outcome.reward * self.steps)


class TwoArguments(Mass):
    def step(self, state, action):
        return super().step(state, action, jax.random.key(0))


class ResetsItself(BraxStyle):
    def reset(self, rng):
        state = super().reset(rng)
        state.info["first_obs"] = state.obs
        return state


class Dicts(Mass):
    observation_space = spaces.Dict({"a": Mass.observation_space})

    def reset(self, key):
        state, observation = super().reset(key)
        return state, {"b": observation}


BROKEN = {
    Branches: r"step of Branches cannot be compiled: TracerBoolConversionError at .*"
    r"test_functional_checks.py:\d+: if state\[\"at\"\]\[0\] > 0: \(Attempted boolean conversion",
    Host: r"step of Host cannot be compiled: TracerArrayConversionError at .*np.asarray\(action\)",
    Named: r"the state of Named is not made of arrays: state\['name'\] is a str",
    Grows: r"state\['more'\] of Grows changes its type: nothing after a reset, int32\[\] after a",
    Lengthens: r"observation of Lengthens changes its type: float32\[2\] after .* float32\[3\]",
    Rounds: r"observation of Rounds changes its type: float32\[2\] after a reset, int32\[2\] after",
    Widens: r"observation of Widens has shape \(2,\), its space \(3,\)",
    Pixels: r"observation of Pixels has numbers of type float32, its space uint8",
    PaysTwice: r"reward of PaysTwice is not one number: it is \(2,\)",
    FourValues: "step of FourValues returns 4 values, not state, observation, reward, terminated",
    OnlyState: "reset of OnlyState returns a dict, not state, observation",
    NoSpace: "observation_space of NoSpace is a NoneType: it must be one of gymnasium.spaces",
    NoLimit: "step_limit of NoLimit is missing: the steps after which an episode is truncated, or",
    Zero: "step_limit of Zero must be at least 1, or None: 0",
    ResetsItself: "ResetsItself resets itself, and the last observation of an episode is lost",
    Dicts: "observation of Dicts does not have the names of its space",
    Forgets: "reset of Forgets uses what an earlier call has left in an attribute: what an episode",
    Draws: "reset of Draws is another program each time it is traced: random numbers have to come",
    Counts: "step of Counts is another program each time it is traced: random numbers have to come",
    TwoArguments: r"the callable has to make .*, not TwoArguments: reset\(key\) and step\(state,",
    object: "the callable has to make a gymnasium.Env or a functional environment, not object",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_it_is_refused(broken: type):
    with pytest.raises(UserError, match="^" + BROKEN[broken]) as caught:
        make_env(broken)
    assert "\n" not in str(caught.value)


def test_what_jax_has_is_the_same_program_when_it_is_traced_again():
    """Names and addresses in what is printed of a program do not count."""

    class Rich(Mass):
        table = np.linspace(0, 1, 12)

        def step(self, state, action, key):
            outcome = super().step(state, action, key)
            reward = jax.nn.relu(outcome.reward) + jax.scipy.special.logsumexp(outcome.observation)
            reward += jax.lax.cond(reward > 0, lambda: 1.0, lambda: 2.0) + self.table[3]
            reward += jax.lax.scan(lambda sum, x: (sum + x, x), 0.0, jnp.asarray(self.table))[0]
            reward += jax.grad(lambda x: jax.nn.gelu(x).sum())(outcome.observation).sum()
            return outcome._replace(reward=reward + jnp.linalg.inv(jnp.eye(2))[0, 0])

    assert make_env(Rich).reset(seed=0)[0].dtype == np.float32


def test_whole_numbers_for_a_space_of_floats_are_taken():
    class Whole(Mass):
        def reset(self, key):
            state, observation = super().reset(key)
            return state, observation.astype(jnp.int32)

        def broken(self, outcome):
            return outcome._replace(observation=outcome.observation.astype(jnp.int32))

    assert make_env(Whole).reset(seed=0)[0].dtype == np.float32


MODULE = """
from tests.functional_worlds import PointMass
class Mass(PointMass): pass
class Careless(PointMass):
    def step(self, state, action, key):
        return super().step(state, float(action[0]), key)
def make(edge=2.5):
    return Mass(edge=edge)
def nothing():
    return [1]
def wrong():
    raise RuntimeError("no motor")
limit = 3
mass = Mass()
"""


class TestByName:
    """'module:make' and prefixes, on the command line."""

    @pytest.fixture(autouse=True)
    def _module(self, tmp_path, monkeypatch):
        (tmp_path / "worlds_of_mine.py").write_text(MODULE)
        monkeypatch.syspath_prepend(tmp_path)

    def test_what_is_named_makes_it(self):
        env = make_env("worlds_of_mine:make")
        assert str(env.env_spec) == "float32 observations of 2 and 1 action dimensions"
        assert make_env("worlds_of_mine:make").unwrapped.functional is env.unwrapped.functional

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("worlds_of_mine:Careless", "step of worlds_of_mine:Careless cannot be compiled: Conc"),
            ("worlds_of_mine:mak", "unknown environment .*: did you mean worlds_of_mine:make"),
            ("worlds_of_mine:limit", "unknown environment 'worlds_of_mine:limit': did you mean "),
            ("worlds_of_mine:mass", "worlds_of_mine:mass is one environment: name the class or"),
            ("worlds_of_mine:nothing", "worlds_of_mine:nothing has to make a gymnasium.Env"),
            ("worlds_of_mine:wrong", "cannot be made: RuntimeError: no motor"),
            ("brx:ant", "brx is no module, nor one of the prefixes .*: did you mean brax:ant"),
            ("worlds_of_min:make", "worlds_of_min is no module, nor one of the prefixes func"),
        ],
    )
    def test_what_cannot_be_is_one_line(self, capsys, tmp_path, name: str, message: str):
        code, _, errors = call(capsys, "train", name, "--out", tmp_path / "run")
        assert code == 2
        assert re.match(f"p3s: .*{message}", errors.splitlines()[-1]), errors

    def test_packages_that_are_missing(self, monkeypatch):
        monkeypatch.setattr("p3s.envs.prefixes.find_spec", lambda name: None)
        for name, install in (
            ("brax:ant", r"pip install 'p3s\[brax\]'"),
            ("playground:CartpoleSwingup", r"pip install 'p3s\[playground\]'"),
            ("gymnax:Pendulum-v1", "pip install flax .* && pip install --no-deps gymnax"),
        ):
            with pytest.raises(UserError, match=f"^{name} needs {name.split(':')[0]}: {install}$"):
                make_env(name)
