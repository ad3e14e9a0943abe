"""The report's tables as Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from p3s.report.aggregates import Estimate
from p3s.report.formatting import (
    interval_text,
    p_text,
    ratio_text,
    score_text,
    share_text,
    stands_text,
)
from p3s.report.performance import Cell
from p3s.report.statistics import Interval
from p3s.report.summary import Summary
from p3s.runs.files import write_text

LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "–": "--", "β": r"$\beta$", "≥": r"$\geq$", "×": r"$\times$",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A small table of text; `bold` holds the (row, column) of cells in bold."""

    name: str
    header: list[str]
    rows: list[list[str]]
    bold: frozenset[tuple[int, int]] = frozenset()


def escape_latex(text: str) -> str:
    """Text escaped so that LaTeX prints it literally."""
    return "".join(LATEX.get(character, character) for character in text)


def to_markdown(table: Table) -> str:
    """A table as Markdown."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def shown(text: str, row: int, column: int) -> str:
        text = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
        return f"**{text}**" if (row, column) in table.bold else text

    rule = ["---", *["---:"] * (len(table.header) - 1)]
    rows = [
        line(shown(text, row, column) for column, text in enumerate(cells))
        for row, cells in enumerate(table.rows)
    ]
    return "\n".join([line(shown(t, -1, 0) for t in table.header), line(rule), *rows]) + "\n"


def to_latex(table: Table) -> str:
    """A table as LaTeX for the booktabs package."""

    def shown(text: str, row: int, column: int) -> str:
        text = escape_latex(text)
        return rf"\textbf{{{text}}}" if (row, column) in table.bold else text

    def line(cells: Iterable[str]) -> str:
        return " & ".join(cells) + r" \\"

    rows = [
        line(shown(text, row, column) for column, text in enumerate(cells))
        for row, cells in enumerate(table.rows)
    ]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            r"\toprule",
            line(escape_latex(text) for text in table.header),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def to_csv(header: list[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV with numbers in full precision; missing numbers are empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([_plain(value) for value in row])
    return buffer.getvalue()


def _plain(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


def final_table(summary: Summary) -> Table:
    """Environments by methods: mean ± sd of the score, the best of each environment in bold."""
    methods = list(dict.fromkeys(method for method, _ in summary.cells))
    published = {cell.method for cell in summary.cells.values() if cell.paper is not None}
    header, rows, bold = ["Environment"], [], set()
    for method in methods:
        header += [method, f"{method}, paper"] if method in published else [method]
    policies = reference_policies(summary)
    header += [f"{policy} policy" for policy in policies]
    for row, env in enumerate(summary.scales):
        cells = [env]
        for method in methods:
            cell = summary.cells.get((method, env))
            if cell is not None and summary.best(env) == method:
                bold.add((row, len(cells)))
            cells.append("–" if cell is None else _mean_and_deviation(cell))
            if method in published:
                cells.append("–" if cell is None else score_text(cell.paper))
        earned = _reference_means(summary, env)
        rows.append(cells + [score_text(earned.get(policy)) for policy in policies])
    return Table("final", header, rows, frozenset(bold))


def reference_policies(summary: Summary) -> list[str]:
    """The policies that learn nothing and were measured on some environment."""
    measured = {policy for env in summary.scales for policy in _reference_means(summary, env)}
    return [policy for policy in ("idle", "random") if policy in measured]


def _reference_means(summary: Summary, env: str) -> dict[str, float]:
    reference = summary.scales[env].reference
    return {} if reference is None else reference.means


def _mean_and_deviation(cell: Cell) -> str:
    score = cell.score
    if not math.isfinite(score.deviation):
        return score_text(score.mean)
    large = abs(score.mean) >= 1000
    deviation = f"{score.deviation:,.0f}" if large else score_text(score.deviation)
    return f"{score_text(score.mean)} ± {deviation}"


def aggregate_table(summary: Summary) -> Table:
    """Aggregates over environments with intervals, and ranges with one environment left out."""

    def shown(estimate: Estimate) -> list[str]:
        low, high = estimate.interval
        known = f" [{low:.2f}, {high:.2f}]" if math.isfinite(low) else ""
        return [ratio_text(estimate.value) + known, interval_text(estimate.left_out) or "–"]

    names = ("IQM", "IQM of the champion", "Mean", "Optimality gap")
    header = ["Method"]
    for name in names:
        header += [name, f"{name}, one left out"]
    rows = [
        [
            item.method,
            *shown(item.iqm),
            *shown(item.champion_iqm),
            *shown(item.mean),
            *shown(item.gap),
        ]
        for item in summary.aggregates
    ]
    return Table("aggregates", header, rows)


def lottery_table(summary: Summary) -> Table:
    """How bad each method's unlucky seeds are."""
    rows = [
        [item.method, ratio_text(item.tail.quantile), share_text(item.tail.share)]
        for item in summary.aggregates
        if item.tail is not None
    ]
    return Table("lottery", ["Method", "10 % quantile", "Runs below half of the median"], rows)


def improvement_table(summary: Summary) -> Table:
    """Probability of improvement for every pair of methods."""
    rows = [
        [item.ours, item.theirs, ratio_text(item.chance), interval_text(item.interval) or "–",
         p_text(item.p_value), item.verdict, interval_text(item.left_out) or "–",
         stands_text(item.stands)]
        for item in summary.improvements
    ]  # fmt: skip
    header = ["Method", "over", "Probability", "95 % interval", "p (Holm)", "Verdict",
              "One left out", "Verdict stands"]  # fmt: skip
    return Table("improvement", header, rows)


def final_rows(summary: Summary) -> list[dict[str, object]]:
    """One row per method and environment with every number about final performance, for CSV."""
    rows: list[dict[str, object]] = []
    for (method, env), cell in summary.cells.items():
        scale, best_of = summary.scales[env], cell.best_of
        earned = _reference_means(summary, env)
        row = {
            "environment": env, "method": method, "step": scale.step, "seeds": len(cell.seeds),
            "score": cell.score.mean, "score_sd": cell.score.deviation,
            **_ends("score", cell.score.interval), "score_iqm": cell.iqm,
        }  # fmt: skip
        names = {"champion": "champion", "chief_pick": "chief", "population_mean": "mean"}
        for name, measure in names.items():
            measured = cell.measures[measure]
            row |= {name: measured.mean, **_ends(name, measured.interval)}
        row |= {f"best_of_{kind}": best_of.get(kind) for kind in ("count", "full", "equal")}
        row |= {
            "paper": cell.paper, "area": cell.area.mean, **_ends("area", cell.area.interval),
            "threshold": scale.threshold,
            "reached": sum(math.isfinite(steps) for steps in cell.reached),
            "median_steps_to_threshold": cell.median_reached,
            **{policy: earned.get(policy) for policy in ("idle", "random")},
        }  # fmt: skip
        rows.append(row)
    return rows


def _ends(name: str, interval: Interval) -> dict[str, object]:
    return {f"{name}_low": interval.low, f"{name}_high": interval.high}


def write_tables(summary: Summary, folder: Path) -> list[Path]:
    """Write every table in every format and return the paths."""
    tables = [final_table(summary)]
    if summary.aggregates:
        tables.append(aggregate_table(summary))
        if any(item.tail is not None for item in summary.aggregates):
            tables.append(lottery_table(summary))
    if summary.improvements:
        tables.append(improvement_table(summary))
    texts: dict[str, str] = {}
    for table in tables:
        texts[f"{table.name}.md"] = to_markdown(table)
        texts[f"{table.name}.tex"] = to_latex(table)
        texts[f"{table.name}.csv"] = to_csv(table.header, table.rows)
    rows = final_rows(summary)
    texts["final.csv"] = to_csv(list(rows[0]), [row.values() for row in rows])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
