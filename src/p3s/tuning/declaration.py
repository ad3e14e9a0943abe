"""What a study searches, as it is kept with it, and how trials are proposed and ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from p3s.config.run import Config, resolve_spec
from p3s.config.spec import RunSpec
from p3s.machine import require_optuna
from p3s.plugins.loading import import_module
from p3s.tuning.spaces import Space, space_from_json

VERSION = 1
"""Of what is kept with a study."""


@dataclass(frozen=True)
class Declaration:
    """What a study searches: the run that all trials have in common, the spaces, the seeds."""

    spec: RunSpec
    spaces: Mapping[str, Space]
    seeds: int

    def config(self, params: Mapping[str, Any], seed: int = 0) -> Config:
        """The run of a trial with Optuna's parameters, for the first seed or a later one."""
        found = {name: space.value(params[name]) for name, space in self.spaces.items()}
        base = resolve_spec(self.spec, check=False).options.seed
        fields = {**self.spec.fields, **found, "seed": base + seed}
        return resolve_spec(dataclasses.replace(self.spec, fields=fields))

    def to_json(self) -> dict[str, Any]:
        """What is kept with the study, by setting."""
        names = {f.name: getattr(self.spec, f.name) for f in dataclasses.fields(RunSpec)}
        fields = {"seed": 0, **names.pop("fields")}
        del names["origins"], names["loggers"]
        spaces = {name: space.to_json() for name, space in self.spaces.items()}
        modules = resolve_spec(self.spec, check=False).to_json()["modules"]
        record = {**names, "fields": fields, "search": spaces, "seeds": self.seeds}
        return json.loads(json.dumps({"version": VERSION, "modules": modules, **record}))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Declaration:
        """The declaration that `to_json` wrote."""
        for module in record["modules"]:
            import_module(module)
        own = {f.name for f in dataclasses.fields(RunSpec)} & record.keys()
        spec = RunSpec(**{name: record[name] for name in own})
        spaces = {name: space_from_json(space) for name, space in record["search"].items()}
        return cls(spec.typed(), spaces, record["seeds"])


class Proposals(NamedTuple):
    """How trials are proposed, and how those that are not worth continuing end."""

    sampler: str = "tpe"
    pruner: str = "median"
    startup_trials: int = 10

    def make_sampler(self, seed: int) -> Any:
        """Optuna's sampler."""
        samplers = require_optuna().samplers
        if self.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        return samplers.TPESampler(n_startup_trials=self.startup_trials, seed=seed)

    def make_pruner(self, evaluations: int) -> Any:
        """Optuna's pruner; evaluations: of a trial, which are its steps."""
        with quiet():
            pruners = require_optuna().pruners
            if self.pruner == "halving":
                return pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=4)
            if self.pruner == "median":
                return pruners.MedianPruner(self.startup_trials, n_warmup_steps=evaluations // 3)
            if self.pruner == "wilcoxon":
                return pruners.WilcoxonPruner(p_threshold=0.1)
            return pruners.NopPruner()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's warnings that something is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", require_optuna().exceptions.ExperimentalWarning)
        yield


def flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration with fields and spaces under names of their own."""
    found = {key: value for key, value in record.items() if key not in ("fields", "search")}
    found |= {f"search.{name}": space for name, space in record["search"].items()}
    return found | record["fields"]
