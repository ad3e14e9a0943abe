"""All numbers of a report: scales, final performance, aggregates over environments, comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from p3s.report.aggregates import (
    Aggregate,
    Improvement,
    Overall,
    combine,
)
from p3s.report.formatting import first_names
from p3s.report.performance import Cell, make_cell, with_best_of
from p3s.report.results import Results
from p3s.report.scales import Scale, final_step, make_scale


@dataclass(frozen=True)
class Summary:
    """All numbers of a report."""

    scales: dict[str, Scale]
    cells: dict[tuple[str, str], Cell]
    overall: Overall
    """The numbers over the environments that count for all methods."""
    notes: list[str]

    @property
    def aggregates(self) -> list[Aggregate]:
        """One row per method over all environments."""
        return self.overall.aggregates

    @property
    def improvements(self) -> list[Improvement]:
        """Every method against every other over all environments."""
        return self.overall.improvements

    def best(self, env: str) -> str | None:
        """The method with the highest mean score on an environment.

        None if there is only one, or if a policy that learns nothing earns more than all of them.
        """
        here = [cell for cell in self.cells.values() if cell.env == env]
        highest = max(here, key=lambda cell: cell.score.mean)
        alone = len(here) == 1 or math.isnan(highest.score.mean)
        return None if alone or self.unbeaten(env) is not None else highest.method

    def unbeaten(self, env: str) -> str | None:
        """The policy that learns nothing and earns more than every method, if one does."""
        reference = self.scales[env].reference
        if reference is None:
            return None
        scores = [cell.score.mean for cell in self.cells.values() if cell.env == env]
        earned = reference.means[reference.best]
        return None if any(score >= earned for score in scores) else reference.best


def summarize(results: Results, rng: np.random.Generator) -> Summary:
    """Compute all numbers of a report."""
    scales, cells, notes = {}, {}, []
    for env in results.envs:
        runs = results.select(env=env)
        step = final_step(runs)
        short = [run for run in runs if run.last_step < step]
        if short:
            names = [f"{run.method} seed {run.seed} ({run.last_step:,})" for run in short]
            notes.append(
                f"{env}: final numbers are taken at {step:,} steps; runs that ended earlier "
                f"appear in the curves only: {first_names(names)}"
            )
        reaching = [run for run in runs if run.last_step >= step]
        scales[env] = make_scale(env, step, reaching, results.references.get(env))
        for method in results.methods:
            own = [run for run in reaching if run.method == method]
            if own:
                cells[method, env] = make_cell(own, scales[env], rng)
    cells = with_best_of(cells, results, scales)
    overall, missing = combine(results, scales, cells, rng)
    return Summary(scales, cells, overall, notes + missing)
