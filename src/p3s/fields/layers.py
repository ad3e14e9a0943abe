"""Values of fields in layers: the last one that says a value wins.

    field's own default < algorithm < scheme < preset < environment < given by the user

An algorithm or a scheme keeps its layers in its own file, as `presets`; `config/presets.py` has the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from p3s.algorithms import Algorithm
    from p3s.envs import EnvName
    from p3s.schemes import Scheme


@dataclass(frozen=True)
class Setting:
    """What the values of a layer may depend on."""

    algorithm: type[Algorithm]
    scheme: type[Scheme]
    preset: str
    env: EnvName | None
    """None: one of the user's."""
    num_learners: int
    num_envs: int
    """Environment copies that learners act in."""
    distance: str | None
    """Between policies, kl or action; None where there is no choice."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What the algorithm's own layers say."""

    @property
    def family(self) -> str:
        """The environment without namespace and version; empty for one of the user's."""
        return "" if self.env is None else self.env.family

    @property
    def task(self) -> tuple[str, bool]:
        """The family, and whether its rewards are delayed."""
        return self.family, self.env is not None and self.env.is_delayed

    def own_steps(self, total_steps: int) -> int:
        """Steps of each copy that make up at least this many in total."""
        return -(-total_steps // self.num_envs)


SILENT = object()
"""The value of who says nothing."""


class Layer(NamedTuple):
    """Values of fields, or functions that give them, and the settings that they are for."""

    name: str
    """Where the values are from; empty where its owner says enough."""
    values: Mapping[str, Any | Callable[[Setting], Any]]
    when: Callable[[Setting], bool] = lambda setting: True
    yields: bool = False
    """Whether it leaves alone what the algorithm says."""

    def of(self, setting: Setting) -> dict[str, Any]:
        """The values in a setting."""
        if not self.when(setting):
            return {}
        left_alone = setting.said if self.yields else ()
        made = {name: v(setting) if callable(v) else v for name, v in self.values.items()}
        return {n: v for n, v in made.items() if v is not SILENT and n not in left_alone}


def by_family(values: Mapping[str, Any], other: Any = SILENT) -> Callable[[Setting], Any]:
    """A value that depends on the environment."""
    return lambda setting: values.get(setting.family, other)


def all_updates(setting: Setting) -> int | str:
    """As many updates of each learner as a single one gets at the same environment steps."""
    each = setting.said.get("updates_per_step")
    return "N" if each is None else each * setting.num_envs


def merged(
    setting: Setting, owned: Iterable[tuple[str, Iterable[Layer]]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the layers of all owners, the last wins, and their sources.

    The first owner is the algorithm.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for number, (owner, layers) in enumerate(owned):
        for layer in layers:
            own = layer.of(setting)
            values |= own
            sources |= dict.fromkeys(own, f"{owner} ({layer.name})" if layer.name else owner)
        if number == 0:
            setting = replace(setting, said=dict(values))
    return values, sources
