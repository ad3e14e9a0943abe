"""`p3s theory`: check Theorem 1 on random finite processes and say where it stops (Section 3.1).

draw K random guided updates
for each assumption: how often it held
for each statement of Appendix A: in how many draws it applied, failures, smallest margin
for each claim that the paper invites: its counter-examples
run tabular P3S and the other schemes; draw the pictures if there is a folder for them
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from p3s.errors import UserError
from p3s.theory.draws import random_updates
from p3s.theory.figures import draw_figures, require_matplotlib
from p3s.theory.lemmas import (
    DISCOUNT_LIMIT,
    SHARP_DISCOUNT_LIMIT,
    STATEMENTS,
    a1_holds,
    a2_holds,
    assumed,
    corrected_a2_holds,
    monotone_improvement,
)
from p3s.theory.limits import CHOICE_CLAIMS, CLAIMS, CLEARLY, invest_or_cash, rich_or_poor
from p3s.theory.mdp import FiniteMDP
from p3s.theory.tabular import SCHEMES, History, Tabular, best_values, optimal_value, run_tabular
from p3s.theory.update import GuidedUpdate, smallest_threshold
from p3s.theory.worlds import deceptive_chain, trap_grid

TOLERANCE = 1e-9
"""A statement counts as broken when its margin is below minus this."""


@dataclass(frozen=True)
class Options:
    """Check Theorem 1 on random finite processes, and draw what it says."""

    num_mdps: int = 10_000
    """Random processes to check."""
    num_states: int = 5
    """States of each process."""
    num_actions: int = 3
    """Actions in each state."""
    seed: int = 0
    """Seed of everything drawn."""
    num_runs: int = 100
    """Runs of each tabular scheme; 0 leaves the tabular comparison out."""
    num_periods: int = 60
    """Periods of each tabular run."""
    inertia: float = 0.3
    """How strongly a tabular learner keeps to its own policy; the ranking depends on it."""
    out: Path | None = None
    """Folder for the figures (SVG, needs matplotlib); without it none are drawn."""


def run(options: Options) -> int:
    """Print the check as tables, and draw the figures if `out` is given."""
    _refuse_nonsense(options)
    console, start = Console(), time.perf_counter()
    rng = np.random.default_rng(options.seed)
    sizes = (options.num_mdps, options.num_states, options.num_actions)
    update = random_updates(*sizes, rng)
    chosen = random_updates(*sizes, rng, construct_every=0)
    console.print(assumption_table(update, chosen))
    console.print(statement_table(update))
    console.print(claim_table(update, chosen))
    took = time.perf_counter() - start
    console.print(f"{options.num_mdps} processes checked in {took:.1f} s")
    if options.num_runs == 0:
        return 0
    curves = tabular_curves(options)
    console.print(tabular_table(curves))
    if options.out is not None:
        for path in draw_figures(options.out, options.seed, curves):
            console.print(f"wrote {path}", soft_wrap=True)
    return 0


def _refuse_nonsense(options: Options) -> None:
    least = {"num_mdps": 1, "num_states": 1, "num_actions": 2, "num_runs": 0, "num_periods": 2}
    for name, bound in least.items():
        if getattr(options, name) < bound:
            raise UserError(f"{name} must be at least {bound}, not {getattr(options, name)}")
    if not options.inertia > 0:
        raise UserError(f"inertia must be above 0, not {options.inertia}")
    if options.out is not None and options.num_runs == 0:
        raise UserError("the figures show tabular runs: give num_runs at least 1, or no out")
    if options.out is not None:
        require_matplotlib()


def assumption_table(update: GuidedUpdate, chosen: GuidedUpdate) -> Table:
    """How often each assumption held, in all draws and below and above the discount limits."""
    table = Table(title="How often the assumptions held (third of the draws: A1 by construction)")
    table.add_column("assumption")
    discount = update.mdp.discount
    limits = [0.0, float(DISCOUNT_LIMIT), SHARP_DISCOUNT_LIMIT, 1.0]
    groups = [(low <= discount) & (discount < high) for low, high in pairwise(limits)]
    for name in ("γ < √2−1", "√2−1 ≤ γ < ½", "½ ≤ γ", "all"):
        table.add_column(name, justify="right")
    a1 = a1_holds(update)
    rows = {
        "A1": a1,
        "A2, Lemma 5's ρ and d": a2_holds(update),
        "A1 and A2": a1 & a2_holds(update),
        "A1 and A2, smallest T": a1 & a2_holds(update, smallest_threshold(update)),
        "A2' (corrected)": corrected_a2_holds(update),
    }
    for name, holds in rows.items():
        counts = [f"{int(holds[group].sum())} / {int(group.sum())}" for group in groups]
        table.add_row(name, *counts, f"{holds.mean():.2%}")
    by_return = f"{a1_holds(chosen).mean():.2%}"
    table.add_row("A1, best of 4 by return", "", "", "", by_return)
    return table


def statement_table(update: GuidedUpdate) -> Table:
    """Each statement of Appendix A: where it applies, failures, smallest margin there."""
    table = Table(title="Appendix A: each statement wherever its assumptions held")
    for name in ("statement", "claim", "needs"):
        table.add_column(name)
    for name in ("draws", "broken", "smallest margin"):
        table.add_column(name, justify="right")
    for statement in STATEMENTS:
        margin = statement.sides(update).margin[assumed(update, statement.needs)]
        broken = int((margin < -TOLERANCE).sum())
        smallest = f"{margin.min():.1e}" if margin.size else "none"
        needs = ", ".join(statement.needs) or "–"
        style = "bold red" if broken else None
        cells = (str(margin.size), str(broken), smallest)
        table.add_row(statement.name, statement.claim, needs, *cells, style=style)
    return table


def claim_table(update: GuidedUpdate, chosen: GuidedUpdate) -> Table:
    """What one might read into the paper, and how many draws contradict it."""
    table = Table(title="Readings that are false: counter-examples found")
    table.add_column("reading")
    for name in ("draws", "false in", "worst margin"):
        table.add_column(name, justify="right")
    claims = [(claim, chosen) for claim in CHOICE_CLAIMS] + [(claim, update) for claim in CLAIMS]
    for claim, draws in claims:
        margin = claim.margin(draws)[claim.applies(draws)]
        false = int((margin < -CLEARLY).sum())
        worst = f"{margin.min():.3g}" if margin.size else "none"
        table.add_row(claim.name, str(margin.size), str(false), worst)
    by_hand = {
        "  by hand, ρ = 0.02, d = 0.05": invest_or_cash(),
        "  by hand, ρ = 2": rich_or_poor(),
    }
    for name, example in by_hand.items():
        worst = monotone_improvement(example).margin[0]
        table.add_row(name, "1", str(int(worst < -CLEARLY)), f"{worst:.3g}")
    return table


def tabular_curves(options: Options) -> dict[tuple[str, bool], dict[str, History]]:
    """Every scheme on the chain and the grid, with exact and with sampled Q."""
    curves: dict[tuple[str, bool], dict[str, History]] = {}
    for sampled in (False, True):
        for world, mdp in worlds().items():
            curves[world, sampled] = {
                scheme: run_tabular(
                    mdp,
                    Tabular(
                        scheme=scheme,
                        sampled=sampled,
                        num_runs=options.num_runs,
                        num_periods=options.num_periods,
                        inertia=options.inertia,
                        guided_inertia=options.inertia,
                        seed=options.seed,
                    ),
                )
                for scheme in SCHEMES
            }
    return curves


def worlds() -> dict[str, FiniteMDP]:
    """The two worlds of the comparison by name."""
    return {"deceptive chain": deceptive_chain(), "trap grid": trap_grid()}


def tabular_table(curves: dict[tuple[str, bool], dict[str, History]]) -> Table:
    """Final value of the best learner, and in how many runs it came to the good reward."""
    table = Table(title="Tabular learners: value of the best at the end (mean ± s.e.), runs solved")
    table.add_column("world, Q")
    for name in ("scheme", "best value", "optimum", "solved"):
        table.add_column(name, justify="right")
    for (world, sampled), histories in curves.items():
        optimum = float(optimal_value(worlds()[world])[0])
        for scheme, history in histories.items():
            final = best_values(history)[-1]
            error = final.std() / np.sqrt(final.size)
            table.add_row(
                f"{world}, {'sampled' if sampled else 'exact'}",
                scheme,
                f"{final.mean():.3f} ± {error:.3f}",
                f"{optimum:.3f}",
                f"{(final > 0.9 * optimum).mean():.0%}",
            )
    return table
