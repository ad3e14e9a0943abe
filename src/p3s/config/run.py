"""What a run is: an environment, a scheme with its algorithm, and how it is run and recorded.

A hyper-parameter is written once, as a dataclass field with its bounds in its type; the command
line, the record of a run and the keyword arguments of `Population` are made from it. Where its
value comes from: `fields/layers.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from p3s.algorithms import ALGORITHMS, Algorithm
from p3s.config.data import problem_of_data, problem_of_start
from p3s.config.options import RunOptions
from p3s.config.presets import DEFAULT_PRESET, copies_by_default, default_values, distance_of
from p3s.config.spec import RunSpec, misplaced
from p3s.envs import EnvName
from p3s.envs.delay import Delay
from p3s.errors import UserError, unknown
from p3s.fields.layers import Setting
from p3s.fields.names import UPDATES, new_name, updates_per_step
from p3s.fields.types import as_field, check_fields, field_types
from p3s.machine import equal_parts
from p3s.plugins.loading import find_network, modules_of, recorded
from p3s.schemes import SCHEMES, Scheme
from p3s.schemes.base import StepScheme

FROM_LENGTH = "follows from the steps"
"""The source of a value that the length of the run decides."""


@dataclass(frozen=True)
class Config:
    """A run's resolved configuration; `env` is None where the user gives a callable instead."""

    env: EnvName | None
    scheme: Scheme
    preset: str = DEFAULT_PRESET
    options: RunOptions = field(default_factory=RunOptions)
    callable_delay: Delay | None = None
    """The delay of a callable's rewards; that of a named environment is in `env`."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where the value of a field comes from, by its name, unless it is its own default; empty for a
    run that was read from a record."""

    @property
    def algorithm(self) -> Algorithm:
        """The base algorithm of the scheme."""
        return self.scheme.algorithm

    @property
    def delay(self) -> Delay | None:
        """When rewards are paid, as far as it is known."""
        return self.callable_delay if self.env is None else self.env.payment

    def describe(self) -> str:
        """Scheme, algorithm and environment in one phrase."""
        count = self.scheme.num_learners
        learners = "one learner" if count == 1 else f"{count} learners"
        env = "an environment of your own" if self.env is None else self.env.id
        return f"{self.scheme.name}-{self.algorithm.name}, {learners} on {env}"

    def check(self) -> None:
        """Raise UserError for an invalid value, or values that do not go together."""
        for part in (self.options, self.scheme, self.algorithm):
            check_fields(part)
        network = getattr(self.algorithm, "network", "auto")
        if network != "auto":
            find_network(network)
        problem = (
            self.options.problem()
            or self.scheme.problem()
            or self._problem_of_replay()
            or self._problem_of_credit()
            or self._problem_of_hindsight()
            or problem_of_data(self)
            or problem_of_start(self)
            or self._problem_of_shards()
            or self._problem_of_devices()
        )
        if problem is not None:
            raise problem

    def _problem_of_replay(self) -> UserError | None:
        """What is wrong with the replay, or with whom a learner is replaced by, if anything is."""
        if self.algorithm.on_policy and self.options.buffer_size != RunOptions.buffer_size:
            message = f"{self.algorithm.name} keeps no replay: leave buffer_size out"
            return UserError(message, "buffer_size")
        if self.options.on_divergence != "replace":
            return None
        message = "needs several learners that learn side by side"
        if isinstance(self.scheme, StepScheme) and self.scheme.num_trained > 1:
            if not self.scheme.follows_episodes:
                return None
            message = "is for a guide that is a learner (guide_source)"
        return UserError(f"on_divergence replace {message}", "on_divergence")

    def _problem_of_credit(self) -> UserError | None:
        """What does not go together with credit, if it is asked for."""
        credit, algorithm = self.options.credit, self.algorithm
        if credit == "none":
            return None
        if algorithm.on_policy:
            message = (
                f"credit {credit} rewards what is in a replay, and {algorithm.name} keeps none"
            )
            return UserError(message, "credit")
        if self.scheme.own_rows > 0:
            message = (
                f"credit {credit} draws from the episodes of all learners: leave own_share out"
            )
            return UserError(message, "own_share")
        if credit == "ircr" and getattr(algorithm, "normalize_rewards", False):
            message = "credit ircr scales rewards itself: leave normalize_rewards off"
            return UserError(f"{message} (--no-normalize-rewards)", "normalize_rewards")
        return None

    def _problem_of_hindsight(self) -> UserError | None:
        """What does not go together with goals of hindsight, if they are asked for."""
        algorithm, message, about = self.algorithm, "", "hindsight"
        if self.options.hindsight == "none":
            return None
        if algorithm.on_policy:
            message = f"changes goals in a replay, and {algorithm.name} keeps none"
        elif self.options.credit != "none":
            message, about = "judges every step by itself: leave credit out", "credit"
        elif self.delay is not None:
            message, about = "judges every step by itself: leave delay out", "delay"
        elif self.scheme.own_rows > 0:
            message, about = (
                "draws from the episodes of all learners: leave own_share out",
                "own_share",
            )
        elif getattr(algorithm, "n_step", 1) > 1:
            message, about = "is for one-step returns: leave n_step out", "n_step"
        return UserError(f"hindsight {message}", about) if message else None

    def _problem_of_devices(self) -> UserError | None:
        """Why the learners cannot be spread over the devices, if they cannot."""
        devices, shards = self.options.devices or 1, self.options.shards or 1
        for learners in {len(part) for part in equal_parts(self.scheme.num_trained, shards)}:
            if learners % devices:
                known = ", ".join(str(n) for n in range(1, learners + 1) if learners % n == 0)
                where = " in a shard" if shards > 1 else " that are trained"
                message = f"devices must divide the {learners} learners{where}: {known}"
                return UserError(message, "devices")
        return None

    def _problem_of_shards(self) -> UserError | None:
        """What keeps this run from being split, if it is to be."""
        options, scheme = self.options, self.scheme
        alone = {
            "env_workers": options.env_workers,
            "evaluation_workers": options.evaluation_workers,
            "replay_device": options.replay_device == "device",
        }
        if options.shards is None:
            message = "engine ray needs a number of shards (--shards 2)"
            return UserError(message, "engine") if options.engine == "ray" else None
        about, problem = "shards", None
        if not scheme.can_be_split:
            able = ", ".join(name for name, made in SCHEMES.items() if made.can_be_split)
            problem = f"scheme {scheme.name} cannot be split into shards; these can: {able}"
        elif scheme.follows_episodes:
            about, problem = "guide_source", "guide_source snapshot is for runs without shards"
        elif options.shards > scheme.num_learners:
            problem = f"shards must be at most {scheme.num_learners}, the number of learners"
        elif options.exchange_period > max(scheme.first_update // scheme.num_envs, 1):
            about = "exchange_period"
            problem = (
                f"exchange_period is {options.exchange_period} own steps, and the first update "
                "comes earlier: give a shorter period or more initial_steps"
            )
        elif options.buffer_size < options.exchange_period * scheme.num_envs:
            about, what = "buffer_size", "exchange_period × learners"
            problem = f"buffer_size must hold what is exchanged at a time: {what}"
        elif any(alone.values()):
            about = next(name for name, count in alone.items() if count)
            problem = f"{about} is for runs without shards: each plays its own learners' episodes"
        return None if problem is None else UserError(problem, about)

    def settled(self) -> Config:
        """The configuration with the fields of the algorithm that follow from the run's length.

        In rounds of whole episodes a learner makes about one update per environment step.
        """
        each = self.scheme.updates_per_environment_step()
        num_updates = round(self.options.steps * (1 if each is None else each))
        algorithm = self.algorithm.for_run(max(num_updates, 1))
        if algorithm is self.algorithm:
            return self
        before, after = field_values(self.algorithm), field_values(algorithm)
        changed = [name for name, value in after.items() if value != before[name]]
        return dataclasses.replace(
            self,
            scheme=dataclasses.replace(self.scheme, algorithm=algorithm),
            sources={**self.sources, **dict.fromkeys(changed, FROM_LENGTH)},
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
        types = field_types(RunOptions)
        known = {new_name(key, set(types)): value for key, value in record.items()}
        options = {
            name: as_field(name, known[name], types[name]) for name in types if name in known
        }
        return cls(
            EnvName.from_json(env) if env is not None else None,
            scheme,
            record["preset"],
            RunOptions(**options),
            record.get("callable_delay"),
        )


def field_values(instance: RunOptions | Scheme | Algorithm) -> dict[str, Any]:
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
            raise unknown(f"field of {kind} {name}", key, known, key)
    types = field_types(made)
    clean = {
        # p3s 0.1 had no bound of beta in preset `paper`.
        key: as_field(key, 1e9 if value == "inf" else value, types[key])
        for key, value in values.items()
        if key != "algorithm"
    }
    built = made(**{**values, **clean})
    check_fields(built)
    return built


def resolve(
    env: str | EnvName | None,
    scheme: str = "p3s",
    algorithm: str | None = None,
    preset: str = DEFAULT_PRESET,
    delay: Delay | None = None,
    **fields: Any,
) -> Config:
    """The configuration for these names, with the user's values for any fields; not checked."""
    spec = RunSpec(env, scheme, algorithm, preset, delay, fields=fields)
    return resolve_spec(spec, check=False)


def resolve_spec(spec: RunSpec, check: bool = True) -> Config:
    """The configuration of a run as it is declared; an error names the line in its file."""
    with spec.located():
        config = _resolved(spec).settled()
        if check:
            config.check()
    return config


def _resolved(spec: RunSpec) -> Config:
    spec = spec.typed()
    scheme, algorithm = spec.classes()
    groups = (RunOptions, scheme, algorithm)
    types = field_types(*groups)
    del types["algorithm"]
    spec = spec.with_new_names(set(types))
    if updates := {key: spec.fields[key] for key in UPDATES if key in spec.fields}:
        said = " and ".join(f"{key}={value}" for key, value in updates.items())
        ratio = updates_per_step(updates)
        raise UserError(f"{said} is updates_per_step {ratio} here", next(iter(updates)))
    for key in spec.fields:
        if key not in types:
            raise misplaced(key, set(types), scheme.name, algorithm.name)
    given = {key: as_field(key, value, types[key]) for key, value in spec.fields.items()}
    setting = _setting(spec, scheme, algorithm, given)
    defaults, sources = default_values(setting)
    values, parts = {**defaults, **given}, []
    for group in groups:
        names = [f.name for f in dataclasses.fields(group) if f.name in types]
        parts.append({name: values[name] for name in names if name in values})
        # A default of a scheme's field is not meant for an algorithm that has its namesake.
        values = {
            name: value for name, value in values.items() if name in given or name not in names
        }
    options, scheme_values, algorithm_values = parts
    sources = {name: source for name, source in sources.items() if name in types}
    sources |= {name: spec.origins.get(name) or "given" for name in given}
    sources["algorithm"] = "given" if spec.algorithm else "suits the environment"
    return Config(
        spec.name,
        scheme(algorithm=algorithm(**algorithm_values), **scheme_values),
        spec.preset,
        RunOptions(**options),
        spec.callable_delay,
        sources,
    )


def _setting(
    spec: RunSpec, scheme: type[Scheme], algorithm: type[Algorithm], given: Mapping[str, Any]
) -> Setting:
    num_learners = given.get("num_learners", scheme.num_learners)
    each = given.get("envs_per_learner", copies_by_default(scheme, spec.preset))
    distance = given.get("distance") or distance_of(algorithm, spec.preset)
    return Setting(
        algorithm,
        scheme,
        spec.preset,
        spec.name,
        num_learners,
        max(num_learners * each, 1),
        distance,
    )
