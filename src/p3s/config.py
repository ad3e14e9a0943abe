"""What a run is: an environment, a scheme with its algorithm, and how it is run and recorded.

A hyper-parameter is written once, as a dataclass field with its bounds in its type; the command
line, the record of a run and the keyword arguments of `Population` are made from it. A value comes
from, in this order: the user, the preset for this environment, the field's default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.environment_presets import default_algorithm
from p3s.envs import EnvName, parse_name
from p3s.envs.copies import equal_parts
from p3s.envs.delay import Delay
from p3s.errors import UserError, unknown
from p3s.field_names import ELSEWHERE, FAMILIAR, new_name
from p3s.field_types import Mismatch, check_fields, convert, field_types
from p3s.plugins import find, find_network, modules_of, recorded
from p3s.presets import DEFAULT_PRESET, PRESETS, preset_fields
from p3s.products import has_half_width_products
from p3s.run_options import RunOptions
from p3s.schemes import SCHEMES, Scheme, scheme_name
from p3s.schemes.base import StepScheme


@dataclass(frozen=True)
class Config:
    """A run's resolved configuration; `env` is None where the user gives a callable instead."""

    env: EnvName | None
    scheme: Scheme
    preset: str = DEFAULT_PRESET
    options: RunOptions = field(default_factory=RunOptions)
    callable_delay: Delay | None = None
    """The delay of a callable's rewards; that of a named environment is in `env`."""

    @property
    def algorithm(self) -> Algorithm:
        """The base algorithm of the scheme."""
        return self.scheme.algorithm

    def describe(self) -> str:
        """Scheme, algorithm and environment in one phrase."""
        count = self.scheme.num_learners
        learners = "one learner" if count == 1 else f"{count} learners"
        env = "an environment of your own" if self.env is None else self.env.id
        return f"{self.scheme.name}-{self.algorithm.name}, {learners} on {env}"

    def check(self) -> None:
        """Raise UserError for a value that makes no sense."""
        for part in (self.options, self.scheme, self.algorithm):
            check_fields(part)
        network = getattr(self.algorithm, "network", "auto")
        if network != "auto":
            find_network(network)
        problem = self.options.problem() or self.scheme.problem()
        if self.algorithm.on_policy and self.options.buffer_size != RunOptions.buffer_size:
            problem = f"{self.algorithm.name} keeps no replay: leave buffer_size out"
        side_by_side = isinstance(self.scheme, StepScheme) and self.scheme.num_trained > 1
        if self.options.on_divergence == "replace" and self.scheme.follows_episodes:
            problem = "on_divergence replace is for a guide that is a learner (guide_source)"
        if self.options.on_divergence == "replace" and not side_by_side:
            problem = "on_divergence replace needs several learners that learn side by side"
        problem = problem or self._problem_of_shards() or self._problem_of_devices()
        if problem is not None:
            raise UserError(problem)

    def _problem_of_devices(self) -> str | None:
        """Why the learners cannot be spread over the devices, if they cannot."""
        devices, shards = self.options.devices or 1, self.options.shards or 1
        for learners in {len(part) for part in equal_parts(self.scheme.num_trained, shards)}:
            if learners % devices:
                known = ", ".join(str(n) for n in range(1, learners + 1) if learners % n == 0)
                where = " in a shard" if shards > 1 else " that are trained"
                return f"devices must divide the {learners} learners{where}: {known}"
        return None

    def _problem_of_shards(self) -> str | None:
        """What keeps this run from being split, if it is to be."""
        options, scheme = self.options, self.scheme
        if options.shards is None:
            missing = options.engine == "ray"
            return "engine ray needs a number of shards (--shards 2)" if missing else None
        if not scheme.can_be_split:
            able = ", ".join(name for name, made in SCHEMES.items() if made.can_be_split)
            return f"scheme {scheme.name} cannot be split into shards; these can: {able}"
        if scheme.follows_episodes:
            return "guide_source snapshot is for runs without shards"
        if options.shards > scheme.num_learners:
            return f"shards must be at most {scheme.num_learners}, the number of learners"
        if options.exchange_period > max(scheme.first_update // scheme.num_envs, 1):
            return (
                f"exchange_period is {options.exchange_period} own steps, and the first update "
                "comes earlier: give a shorter period or more initial_steps"
            )
        if options.buffer_size < options.exchange_period * scheme.num_envs:
            return "buffer_size must hold what is exchanged at a time: exchange_period × learners"
        if options.on_divergence == "replace":
            return "on_divergence replace is for runs without shards"
        for name in ("env_workers", "evaluation_workers"):
            if getattr(options, name):
                return f"{name} is for runs without shards: each plays its own learners' episodes"
        return None

    def nothing_learned(self) -> str | None:
        """Why this run will learn nothing, if it will not."""
        first = self.scheme.first_update
        if self.options.steps >= first:
            return None
        return (
            f"learning begins at environment step {first:,}, and the run has "
            f"{self.options.steps:,}: nothing will be learned (--initial-steps)"
        )

    def cost(self) -> str | None:
        """How much a run computes per environment step, if that is fixed."""
        each, learners = self.scheme.updates_per_environment_step(), self.scheme.num_trained
        if each is None:
            return None
        updates = f"{each:g} update" + ("" if each == 1 else "s")
        if learners == 1:
            return f"cost: {updates} per environment step"
        return (
            f"cost: {updates} of each learner per environment step, "
            f"{each * learners:g} in all (a single learner makes 1)"
        )

    def slow_precision(self) -> str | None:
        """Why half-width products will be slower here, if they will."""
        precision = getattr(self.algorithm, "precision", "float32")
        if precision == "float32" or has_half_width_products():
            return None
        return "this hardware has no bfloat16 products: they will be slower than float32"

    def silent_chief(self) -> str | None:
        """Why the chief will never review this run, if it will not."""
        period = getattr(self.scheme, "review_period", 0)
        own_steps = self.options.steps // max(1, self.scheme.num_envs)
        kind = type(self.scheme)
        idle = kind.review is Scheme.review and kind.decide is Scheme.decide
        if period <= own_steps or idle:
            return None
        return (
            f"review_period is {period} own steps of a learner, and the run has {own_steps}: "
            "the chief would never review it; give a shorter period or more steps"
        )

    def settled(self) -> Config:
        """The configuration with the fields of the algorithm that follow from the run's length.

        In rounds of whole episodes a learner makes about one update per environment step.
        """
        each = self.scheme.updates_per_environment_step()
        num_updates = round(self.options.steps * (1 if each is None else each))
        algorithm = self.algorithm.for_run(max(num_updates, 1))
        if algorithm is self.algorithm:
            return self
        return dataclasses.replace(
            self, scheme=dataclasses.replace(self.scheme, algorithm=algorithm)
        )

    def to_json(self) -> dict[str, Any]:
        """Everything that `from_json` needs to run the same again."""
        return {
            "environment": dataclasses.asdict(self.env) if self.env is not None else None,
            "callable_delay": self.callable_delay,
            "scheme": self.scheme.name,
            "algorithm": self.algorithm.name,
            "modules": modules_of((self.scheme, self.algorithm)),
            "preset": self.preset,
            **dataclasses.asdict(self.options),
            "scheme_fields": field_values(self.scheme),
            "algorithm_fields": field_values(self.algorithm),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Config:
        """The configuration that `to_json` wrote."""
        algorithm = build(ALGORITHMS, "algorithm", record["algorithm"], record["algorithm_fields"])
        fields = {**record["scheme_fields"], "algorithm": algorithm}
        # p3s 0.1 called the scheme of on-policy algorithms `single` too.
        name = "rollout" if algorithm.on_policy else record["scheme"]
        scheme = build(SCHEMES, "scheme", name, fields)
        env = record["environment"]
        # Options that a run of an older version does not have are as by default.
        known = {option.name for option in dataclasses.fields(RunOptions)} & record.keys()
        types = field_types(RunOptions)
        options = {name: _as_field(name, record[name], types[name]) for name in known}
        return cls(
            EnvName.from_json(env) if env is not None else None,
            scheme,
            record["preset"],
            RunOptions(**options),
            record.get("callable_delay"),
        )


def field_values(instance: Scheme | Algorithm) -> dict[str, Any]:
    """Name and value of every hyper-parameter."""
    values = {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}
    values.pop("algorithm", None)
    return values


def build(registry: MutableMapping[str, Any], kind: str, name: str, values: dict[str, Any]) -> Any:
    """A registered dataclass from its name and JSON values."""
    made = recorded(registry, kind, name)
    known = {f.name for f in dataclasses.fields(made)}
    values = {new_name(key, known): value for key, value in values.items()}
    for key in values:
        if key not in known:
            raise unknown(f"field of {kind} {name}", key, known)
    types = field_types(made)
    clean = {
        # p3s 0.1 had no bound of beta in preset `paper`.
        key: _as_field(key, 1e9 if value == "inf" else value, types[key])
        for key, value in values.items()
        if key != "algorithm"
    }
    built = made(**{**values, **clean})
    check_fields(built)
    return built


def scheme_class(scheme: str, algorithm: str) -> type[Scheme]:
    """The class of a scheme with this algorithm; UserError if the two do not go together."""
    on_policy = ALGORITHMS[algorithm].on_policy
    if on_policy and scheme != "rollout":
        raise UserError(
            f"{algorithm} learns from its own latest steps only and cannot share a replay: "
            "choose --scheme rollout"
        )
    if scheme == "rollout" and not on_policy:
        raise UserError(f"scheme rollout is for on-policy algorithms, which {algorithm} is not")
    return SCHEMES[scheme]


def _as_field(name: str, value: Any, expected: Any) -> Any:
    """The user's value as the field holds it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    try:
        return convert(value, expected)
    except Mismatch as error:
        raise UserError(f"{name}: {error}") from error


def owners_of(key: str) -> list[str]:
    """The schemes and algorithms that have a field of this name."""
    return [
        owner
        for owner, made in {**SCHEMES, **ALGORITHMS}.items()
        if key in {f.name for f in dataclasses.fields(made)}
    ]


def misplaced(key: str, known: set[str], scheme: str, algorithm: str) -> UserError:
    """The error for a field that these two do not have: whose it is, or what comes near it."""
    owners = owners_of(key)
    if key in ELSEWHERE:
        return UserError(f"{key} is no field: {ELSEWHERE[key]}")
    if not owners:
        ours = [name for name in FAMILIAR.get(key, ()) if name in known]
        if ours:
            return UserError(f"{key} is called {' or '.join(ours)} here")
        return unknown("field", key, known)
    owned = f"{key} is a field of {', '.join(owners)}"
    return UserError(f"{owned}, not of scheme {scheme} with {algorithm}")


def resolve(
    env: str | EnvName | None,
    scheme: str = "p3s",
    algorithm: str | None = None,
    preset: str = DEFAULT_PRESET,
    delay: Delay | None = None,
    **fields: Any,
) -> Config:
    """The configuration for these names, with the user's values for any fields.

    Without an algorithm it is the one that suits the environment.
    """
    return resolve_values(env, scheme, algorithm, preset, delay, **fields).settled()


def resolve_values(
    env: str | EnvName | None,
    scheme: str = "p3s",
    algorithm: str | None = None,
    preset: str = DEFAULT_PRESET,
    delay: Delay | None = None,
    **fields: Any,
) -> Config:
    """`resolve` for a run whose length is still open: what follows from it is not settled."""
    name = parse_name(env, delay) if isinstance(env, str) else env
    scheme = find(SCHEMES, "scheme", scheme if ":" in scheme else scheme_name(scheme)).name
    suited = "ppo" if scheme == "rollout" else default_algorithm(name)
    wanted = suited if algorithm is None else algorithm
    known_as = wanted if ":" in wanted or wanted in ALGORITHMS else wanted.lower()
    learned_by = find(ALGORITHMS, "algorithm", known_as)
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    scheme_type = scheme_class(scheme, learned_by.name)
    groups = (RunOptions, scheme_type, learned_by)
    known = [{f.name for f in dataclasses.fields(group)} - {"algorithm"} for group in groups]
    every = set().union(*known)
    for key in fields:
        if key not in every and new_name(key, every) in every:
            raise UserError(f"{key} is now called {new_name(key, every)}")
        if key not in every:
            raise misplaced(key, every, scheme, learned_by.name)
    types = field_types(*groups)
    fields = {key: _as_field(key, value, types[key]) for key, value in fields.items()}
    counted = "num_copies" if "num_copies" in every else "num_learners"
    num_envs = max(fields.get(counted, getattr(scheme_type, counted)), 1)
    defaults = preset_fields(preset, scheme, name, num_envs, learned_by, fields.get("distance"))
    # What a preset says of a scheme's field is not meant for an algorithm that has its namesake.
    of_schemes = {
        f.name for known_scheme in SCHEMES.values() for f in dataclasses.fields(known_scheme)
    }
    known_defaults = [known[0], known[1], known[2] - of_schemes]
    options, scheme_values, algorithm_values = (
        {
            **{key: value for key, value in defaults.items() if key in preset_names},
            **{key: value for key, value in fields.items() if key in names},
        }
        for names, preset_names in zip(known, known_defaults, strict=True)
    )
    built = scheme_type(algorithm=learned_by(**algorithm_values), **scheme_values)
    return Config(name, built, preset, RunOptions(**options), delay if name is None else None)
