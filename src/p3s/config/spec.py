"""A run as it is declared: names, and values of fields.

p3s train, run.toml, a study's cell, Population      each makes a RunSpec
resolve_spec(spec), in run.py                        makes it a Config
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.config.presets import DEFAULT_PRESET, PRESETS
from p3s.config.suitability import suited_algorithm
from p3s.envs import Adapter, Delay, EnvName, make_env, parse_name
from p3s.envs.delay import checked_delay
from p3s.errors import UserError, unknown
from p3s.fields.names import ELSEWHERE, FAMILIAR, new_name
from p3s.fields.types import as_field, field_types
from p3s.plugins.loading import find
from p3s.schemes import SCHEMES, Scheme, scheme_name


@dataclass(frozen=True)
class Method:
    """What learns, on what. These decide the defaults of all fields."""

    env: Any
    """Gymnasium id, 'module:Env-v0', or one of the paper's names ('Delayed Ant-v1')."""
    scheme: str = "p3s"
    """How the population is used: see 'p3s schemes'; or 'module:Name'."""
    algorithm: str | None = None
    """Base algorithm: see 'p3s algorithms'; or 'module:Name' for one of your own. By default the
    one that suits the environment ('p3s presets'), else td3."""
    preset: str = DEFAULT_PRESET
    """Set of defaults: recommended, paper (the text), authors (their code), or parallel (hundreds
    of copies on a device)."""
    delay: Delay | None = None
    """Steps between two payments of reward, or end: all of it at the end of an episode."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment, as pairs: max_episode_steps 500 frame_skip 2."""
    wrappers: tuple[str, ...] = ()
    """Wrappers of the environment, the innermost first: module:Name, called with it, or with
    arguments 'module:Name(stack_size=4)'."""


@dataclass(frozen=True)
class RunSpec(Method):
    """A run as it is declared; `env` may also be a callable, an EnvName, or None for a callable
    that is not there yet."""

    loggers: tuple[str, ...] = ()
    """What it is logged to, besides its folder."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values by name, of the run, the scheme or the algorithm."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where in a file a name or a field is declared: 'run.toml:3'."""

    def typed(self) -> RunSpec:
        """The same run; UserError for a name that is not of its type."""
        types = {**field_types(Method), "env_kwargs": dict}
        del types["env"], types["delay"]
        typed = {name: as_field(name, getattr(self, name), types[name]) for name in types}
        if self.delay is not None:
            typed["delay"] = checked_delay(self.delay)
        typed["loggers"] = as_field("loggers", self.loggers, tuple[str, ...])
        return dataclasses.replace(self, **typed)

    @cached_property
    def name(self) -> EnvName | None:
        """The environment's name with all that belongs to it; None for a callable."""
        if isinstance(self.env, str):
            return parse_name(self.env, self.delay, self.env_kwargs, self.wrappers)
        if isinstance(self.env, EnvName):
            return self.env
        for given, what in (("env_kwargs", "pass them"), ("wrappers", "wrap it")):
            if getattr(self, given):
                message = f"{given} are for an environment's id: let the callable {what}"
                raise UserError(message, given)
        return None

    @property
    def callable_delay(self) -> Delay | None:
        """The delay of a callable's rewards; that of a named environment is in its name."""
        return None if self.name else self.delay

    @property
    def make(self) -> Callable[[], Adapter]:
        """What makes one more copy of the environment."""
        return partial(make_env, self.name or self.env, self.callable_delay)

    def classes(self) -> tuple[type[Scheme], type[Algorithm]]:
        """Scheme and algorithm; UserError if there are none of the name, or they do not fit."""
        known_as = self.scheme if ":" in self.scheme else scheme_name(self.scheme)
        scheme = find(SCHEMES, "scheme", known_as)
        wanted = self.algorithm
        if wanted is None:
            wanted = suited_algorithm(scheme.name, self.name, self.make)
        known_as = wanted if ":" in wanted or wanted in ALGORITHMS else wanted.lower()
        algorithm = find(ALGORITHMS, "algorithm", known_as)
        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, PRESETS, "preset")
        if algorithm.on_policy and scheme.name != "rollout":
            raise UserError(
                f"{algorithm.name} learns from its own latest steps only and cannot share a "
                "replay: choose --scheme rollout",
                "algorithm",
            )
        if scheme.name == "rollout" and not algorithm.on_policy:
            message = f"scheme rollout is for on-policy algorithms, which {algorithm.name} is not"
            raise UserError(message, "scheme")
        return scheme, algorithm

    def with_new_names(self, known: set[str]) -> RunSpec:
        """The same run, with the fields that a file calls by an old name under their new one."""
        values, origins = dict(self.fields), dict(self.origins)
        for key in self.fields:
            new = new_name(key, known)
            if key not in known and new in known and origins.get(key):
                values.setdefault(new, values.pop(key))
                origins.setdefault(new, origins.pop(key))
        return dataclasses.replace(self, fields=values, origins=origins)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Name the file and the line in errors about what a file declares."""
        try:
            yield
        except UserError as error:
            whole = self.origins.get("env", "")
            place = self.origins.get(error.field or "env", whole)
            if not place:
                raise
            raise UserError(f"{place}: {error}", error.field) from error


def owners_of(key: str) -> list[str]:
    """The schemes and algorithms that have a field of this name."""
    return [
        owner
        for owner, made in {**SCHEMES, **ALGORITHMS}.items()
        if key in {f.name for f in dataclasses.fields(made)}
    ]


def misplaced(key: str, known: set[str], scheme: str, algorithm: str) -> UserError:
    """The error for a field that these two do not have: whose it is, or what comes near it."""
    if new_name(key, known) in known:
        return UserError(f"{key} is now called {new_name(key, known)}", key)
    if key in ELSEWHERE:
        return UserError(f"unknown field {key!r}: {ELSEWHERE[key]}", key)
    owners = owners_of(key)
    if not owners:
        ours = [name for name in FAMILIAR.get(key, ()) if name in known]
        if ours:
            return UserError(f"{key} is called {' or '.join(ours)} here", key)
        return unknown("field", key, known, key)
    owned = f"{key} is a field of {', '.join(owners)}"
    return UserError(f"{owned}, not of scheme {scheme} with {algorithm}", key)
