"""Names of environments: the paper's, the delayed ones registered here, and the reverse.

The paper's `-v1` environments are gone; the closest present ones replace them. Ant-v5 has
v1's observations and contact cost, Walker2d-v5 with `walker2d.xml` has v1's friction. The physics
engine is newer everywhere: compare orderings, not absolute numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from p3s.envs.delay import Delay, DelayedReward, checked_delay

PAPER_DELAY = 20
"""f_reward of the paper's delayed environments."""

PAPER_ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "Hopper": {},
    "Walker2d": {"xml_file": "walker2d.xml"},
    "HalfCheetah": {},
    "Ant": {},
    "Swimmer": {},
}
"""The paper's environments and the arguments that bring today's v5 closest to v1."""

DELAYED_ENVIRONMENTS = ("Hopper", "Walker2d", "HalfCheetah", "Ant")


@dataclass(frozen=True)
class EnvName:
    """A Gymnasium id with its arguments, and a word to the user if a name was translated."""

    id: str
    delay: Delay | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    note: str | None = None
    wrappers: tuple[str, ...] = ()
    """What the environment is wrapped in, the innermost first: 'module:Name(stack_size=4)'."""

    def to_json(self) -> dict[str, Any]:
        """Id, delay, arguments and wrappers, for a policy file."""
        wrappers = {"wrappers": list(self.wrappers)} if self.wrappers else {}
        return {"id": self.id, "delay": self.delay, "kwargs": self.kwargs, **wrappers}

    @classmethod
    def from_json(cls, values: Any) -> EnvName:
        """The name in a file: ValueError if it is invalid."""
        known = {"id", "delay", "kwargs", "note", "wrappers"}
        if not isinstance(values, dict) or not values.keys() <= known:
            raise ValueError("not the name of an environment")
        wrappers = values.get("wrappers", [])
        named = isinstance(wrappers, list | tuple)
        if not named or not all(isinstance(word, str) for word in wrappers):
            raise ValueError("its wrappers are not a list of text")
        given: dict[str, Any] = {**values, "wrappers": tuple(wrappers)}
        name = cls(**given)
        words = isinstance(name.id, str) and isinstance(name.note, str | None)
        if not words or not isinstance(name.kwargs, dict):
            raise ValueError("not the name of an environment")
        if name.delay is not None:
            checked_delay(name.delay)
        return name

    @property
    def family(self) -> str:
        """The name without namespace, version and delay: 'Hopper' of 'p3s/DelayedHopper-v5'."""
        return re.sub(r"-v\d+$", "", re.split(r"[/:]", self.id)[-1]).removeprefix("Delayed")

    @property
    def episode_length(self) -> int | None:
        """Most steps of an episode, where Gymnasium knows them without importing anything."""
        spec = gymnasium.registry.get(self.id.removeprefix("func:"))
        if spec is None:
            return None
        own = gymnasium.registry.get(spec.kwargs.get("env_id", ""))
        return (spec if own is None else own).max_episode_steps

    @property
    def payment(self) -> Delay | None:
        """When rewards are paid, if by a delay that is known of."""
        if self.delay is None and self.id.startswith("p3s/Delayed") and not self.wrappers:
            return self.kwargs.get("delay", PAPER_DELAY)
        return self.delay

    @property
    def is_delayed(self) -> bool:
        """Whether rewards are paid late, by a wrapper or by the environment's own id."""
        return self.delay is not None or self.id.startswith("p3s/Delayed")


def parse_name(
    name: str,
    delay: Delay | None = None,
    arguments: dict[str, Any] | None = None,
    wrappers: tuple[str, ...] = (),
) -> EnvName:
    """Translate a paper name such as 'Hopper-v1' or 'Delayed Ant-v1'; leave all others alone.

    arguments: of the environment, in addition to those that the paper's name implies.
    """
    given = arguments or {}
    match = re.fullmatch(r"(Delayed |Del\. )?(\w+)-v1", name.strip())
    if match is None or match[2] not in PAPER_ENVIRONMENTS:
        return EnvName(name, delay, given, wrappers=wrappers)
    family, kwargs = match[2], PAPER_ENVIRONMENTS[match[2]]
    if match[1] and delay is None:
        delay = PAPER_DELAY
    with_kwargs = "".join(f" with {key}={value}" for key, value in kwargs.items())
    late = f", rewards paid every {delay} steps" if match[1] else ""
    note = f"{name} is the paper's name: using {family}-v5{with_kwargs}{late}, the closest there is"
    return EnvName(f"{family}-v5", delay, {**kwargs, **given}, note, wrappers)


def make_delayed(env_id: str, delay: Delay = PAPER_DELAY, **kwargs: Any) -> gymnasium.Env:
    """Entry point of the registered delayed environments."""
    return DelayedReward(gymnasium.make(env_id, disable_env_checker=True, **kwargs), delay)


def register() -> None:
    """Make p3s/DelayedHopper-v5 and its kin known to Gymnasium."""
    for family in DELAYED_ENVIRONMENTS:
        env_id = f"p3s/Delayed{family}-v5"
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point="p3s.envs.names:make_delayed",
                kwargs={"env_id": f"{family}-v5"},
                disable_env_checker=True,
                order_enforce=False,
            )
