"""The figures of docs/theory.md as small SVG files (needs matplotlib, an extra).

theory-assumptions.svg   how often A1 and A2 hold together, against the discount
theory-beta.svg          true improvement and its lower bound, against beta (Theorem 1, App. B)
theory-gap.svg           the gap of Theorem 1 (a) against the true improvement
theory-radius.svg        the search radius around the best policy (eq. 6)
theory-tabular.svg       best value per period of tabular P3S and the other schemes
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p3s.machine import require_matplotlib
from p3s.theory.draws import random_updates
from p3s.theory.lemmas import (
    DISCOUNT_LIMIT,
    SHARP_DISCOUNT_LIMIT,
    a1_holds,
    a2_holds,
    corrected_a2_holds,
    monotone_improvement,
)
from p3s.theory.mdp import from_arrays
from p3s.theory.policies import kl
from p3s.theory.tabular import SCHEMES, History, Tabular, best_values, run_tabular
from p3s.theory.update import (
    guided_update,
    improvement,
    improvement_gap,
    smallest_threshold,
    threshold,
)
from p3s.theory.worlds import deceptive_chain

COLORS = ("#1b6ca8", "#c8553d", "#588157", "#7a5195")
NUM_BINS = 15


def draw_figures(
    folder: Path, seed: int, curves: dict[tuple[str, bool], dict[str, History]]
) -> list[Path]:
    """Write every figure; `curves` holds tabular runs by (world, sampled) and by scheme."""
    matplotlib = require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Callable[[Any, int], None]] = {
        "assumptions": draw_assumptions,
        "beta": draw_beta,
        "gap": draw_gap,
        "radius": draw_radius,
        "tabular": lambda figure, _: draw_tabular(figure, curves),
    }
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "p3s", "font.size": 9}
    paths = []
    with matplotlib.rc_context(style):
        for name, picture in pictures.items():
            size = (8, 5.5) if name == "tabular" else (8, 3.2)
            figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
            picture(figure, seed)
            paths.append(folder / f"theory-{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None, "Creator": None})
    return paths


def draw_assumptions(figure: Any, seed: int) -> None:
    """How often A2, A2' and the improvement itself hold among draws with A1, by discount."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(0.0, 0.99, NUM_BINS + 1)
    for axes, num_states in zip(figure.subplots(1, 2, sharey=True), (1, 3), strict=True):
        discount = rng.uniform(0.0, 0.99, size=30_000)
        update = random_updates(30_000, num_states, 2, rng, discount, construct_every=1)
        held = a1_holds(update)
        for color, (label, holds) in zip(
            COLORS,
            {
                "A2, Lemma 5's constants": a2_holds(update),
                "A2, smallest threshold": a2_holds(update, smallest_threshold(update)),
                "A2′ (corrected)": corrected_a2_holds(update),
                "Q_new ≥ Q_best": monotone_improvement(update).margin >= -1e-9,
            }.items(),
            strict=True,
        ):
            counts, _ = np.histogram(discount[held], edges)
            hits, _ = np.histogram(discount[held & holds], edges)
            axes.plot((edges[1:] + edges[:-1]) / 2, hits / counts, color=color, label=label)
        axes.axvline(DISCOUNT_LIMIT, color=COLORS[0], linestyle=":")
        axes.axvline(SHARP_DISCOUNT_LIMIT, color=COLORS[1], linestyle=":")
        axes.set(xlabel="discount", title=f"{num_states} state{'s' * (num_states > 1)}, 2 actions")
    figure.axes[0].set_ylabel("share of draws with A1")
    figure.axes[0].legend(fontsize=7, loc="center right")


def draw_beta(figure: Any, seed: int) -> None:
    """Medians of the true improvement and of its bounds, over the same 300 processes per beta."""
    betas = np.logspace(-2, 2, 41)
    for axes, discount in zip(figure.subplots(1, 2), (0.05, 0.9), strict=True):
        rng = np.random.default_rng(seed)
        first = random_updates(300, 3, 2, rng, discount, construct_every=1)
        rows = []
        for beta in betas:
            update = guided_update(first.mdp, first.log_old, first.log_best, beta)
            gain = improvement(update)
            bounds = [
                improvement_gap(update, level).mean(axis=(1, 2))
                for level in (smallest_threshold(update), threshold(update))
            ]
            rows.append([np.median(x) for x in (gain.mean(axis=-1), gain.min(axis=-1), *bounds)])
        labels = (
            "true rise, mean state", "true rise, worst state",
            "gap, smallest threshold", "gap, Lemma 5's constants",
        )  # fmt: skip
        for color, label, line in zip(COLORS, labels, np.array(rows).T, strict=True):
            axes.plot(betas, line, color=color, label=label)
        axes.set(xscale="log", xlabel="β", title=f"discount {discount}")
        axes.set_yscale("symlog", linthresh=0.01)
        axes.axhline(0.0, color="#999999", linewidth=0.7)
    figure.axes[0].set_ylabel("median over processes")
    figure.axes[0].legend(fontsize=7)


def draw_gap(figure: Any, seed: int) -> None:
    """One point per process: the lower bound of Theorem 1 (a) and the quantity it bounds."""
    for axes, discount in zip(figure.subplots(1, 2), (0.05, 0.9), strict=True):
        rng = np.random.default_rng(seed)
        update = random_updates(120, 3, 2, rng, discount, construct_every=1)
        truth = (update.q_new - update.q_best).mean(axis=(1, 2))
        levels = {"smallest threshold": smallest_threshold(update), "Lemma 5": threshold(update)}
        for color, (label, level) in zip(COLORS, levels.items(), strict=False):
            gap = improvement_gap(update, level).mean(axis=(1, 2))
            axes.plot(gap, truth, ".", markersize=3, color=color, label=label)
        line = np.array([0.0, truth.max()])  # no point may lie to the right of this line
        axes.plot(line, line, color="#999999", linewidth=0.7, label="bound = truth")
        if discount > SHARP_DISCOUNT_LIMIT:
            axes.set_xscale("symlog", linthresh=0.1)
        axes.set(xlabel="improvement gap (lower bound)", title=f"discount {discount}")
    figure.axes[0].set_ylabel("true Q_new − Q_best")
    figure.axes[1].legend(fontsize=7)


def draw_radius(figure: Any, seed: int) -> None:
    """Left: minimizers around a best policy over three actions. Right: eq. 6 over time."""
    left, right = figure.subplots(1, 2)
    draw_simplex(left)
    options = Tabular(num_periods=21, num_runs=20, guided_inertia=0.0, seed=seed)
    history = run_tabular(deceptive_chain(), options)
    periods = np.arange(1, options.num_periods)
    parts = {"D_spread": history.spread, "search radius": history.radius, "β": history.beta}
    for color, (label, part) in zip(COLORS, parts.items(), strict=False):
        right.plot(periods, np.median(part[1:], axis=1), color=color, label=label)
    right.set(yscale="log", ylim=(1e-5, 3), xlabel="period", title="chain, exact Q, ρ = 2")
    right.legend(fontsize=7)


def draw_simplex(axes: Any) -> None:
    """Policies over three actions as a triangle, with contours of equal KL to the best."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    best = np.array([0.45, 0.35, 0.2])
    axes.plot(*corners[[0, 1, 2, 0]].T, color="#999999", linewidth=0.8)
    grid = np.array([(i, j, 60 - i - j) for i in range(1, 60) for j in range(1, 60 - i)]) / 60.0
    distance = kl(np.log(grid)[None], np.log(best)[None])[0]
    contours = axes.tricontour(
        *(grid @ corners).T, distance, levels=(0.02, 0.1, 0.3), colors="#bbbbbb", linewidths=0.7
    )
    axes.clabel(contours, fontsize=6)
    mdp = from_arrays(np.ones((1, 3, 1)), np.zeros((1, 3)), 0.0)
    values = ((0.0, 1.0, 0.3), (0.2, 0.0, 1.0), (1.0, 0.3, 0.0))
    for color, q in zip(COLORS[1:], values, strict=False):
        mdp.reward[0, 0] = q
        betas = np.logspace(1.5, -1.2, 25)
        old = np.log(np.full((1, 1, 3), 1 / 3))
        path = [guided_update(mdp, old, np.log(best)[None, None], beta).log_new for beta in betas]
        axes.plot(*(np.exp(path)[:, 0, 0] @ corners).T, ".-", color=color, markersize=3)
    axes.plot(*(best @ corners), "o", color=COLORS[0])
    axes.set(title="three learners as β falls from 30 to 0.06", aspect="equal")
    axes.set_axis_off()


def draw_tabular(figure: Any, curves: dict[tuple[str, bool], dict[str, History]]) -> None:
    """Mean best value with its standard error, at every second period."""
    panels = figure.subplots(2, 2, sharey=True).ravel()
    for axes, ((world, sampled), histories) in zip(panels, curves.items(), strict=False):
        for color, scheme in zip(COLORS, SCHEMES, strict=True):
            best = best_values(histories[scheme])[::2]
            mean, error = best.mean(axis=1), best.std(axis=1) / np.sqrt(best.shape[1])
            periods = 2 * np.arange(len(mean))
            axes.plot(periods, mean, color=color, label=scheme)
            axes.fill_between(
                periods, mean - error, mean + error, color=color, alpha=0.2, linewidth=0
            )
        axes.set(title=f"{world}, {'sampled' if sampled else 'exact'} Q", xlabel="period")
    panels[0].set_ylabel("value of the best learner")
    panels[2].set_ylabel("value of the best learner")
    panels[0].legend(fontsize=7)
