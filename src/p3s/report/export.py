"""Results as one tidy table: one row per run, evaluation and learner (needs polars, an extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from p3s.errors import UserError
from p3s.machine import require_polars
from p3s.report.references import Reference
from p3s.report.results import Results, RunResult, read_results
from p3s.report.statistics import standard_deviation

SUFFIXES = (".parquet", ".csv")
COLUMNS = {
    "run": "String", "method": "String", "env": "String", "seed": "Int64",
    "scheme": "String", "algorithm": "String", "preset": "String",
    "complete": "Boolean", "paper": "Float64",
    "idle": "Float64", "random": "Float64", "step": "Int64",
    "updates": "Int64", "seconds": "Float64", "learner": "Int64",
    "learner_return": "Float64", "learner_return_sd": "Float64",
    "episodes": "Int64", "score": "Float64", "mean": "Float64",
    "champion": "Int64", "champion_return": "Float64",
    "chief_pick": "Int64", "chief_return": "Float64",
}  # fmt: skip
"""The columns and their types in polars; docs/report.md explains them."""
NEEDED = list(COLUMNS)[: list(COLUMNS).index("learner_return_sd")]
"""Those that every version has written, with the score."""


def tidy(results: Results) -> Any:
    """All evaluations as a polars DataFrame."""
    polars = require_polars()
    schema = {name: getattr(polars, kind) for name, kind in COLUMNS.items()}
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for run in results.runs:
        reference = results.references.get(run.env)
        about = {
            **({} if reference is None else reference.means),
            "run": str(run.path), "method": run.method, "env": run.env, "seed": run.seed,
            "complete": run.complete, "paper": run.paper,
            **{name: run.config[name] for name in ("scheme", "algorithm", "preset")},
        }  # fmt: skip
        for evaluation in run.evaluations:
            for learner, returns in enumerate(evaluation["learner_returns"]):
                row = {
                    **about, **evaluation,
                    "learner": learner,
                    "learner_return": float(np.mean(returns)),
                    "learner_return_sd": standard_deviation(np.array(returns)),
                    "episodes": len(returns),
                }  # fmt: skip
                for name, column in columns.items():
                    column.append(row.get(name))
    return polars.DataFrame(columns, schema=schema)


def results_of(table: Any, title: str = "") -> Results:
    """Runs from an exported table, so that numbers can be computed from the file alone.

    They have everything that curves, scales and statistics need, and no settings: a learner's
    episodes are replaced by their mean, a reference's too.
    """
    runs: list[RunResult] = []
    references: dict[str, Reference] = {}
    keys = ["method", "env", "seed"]
    for _, rows in table.group_by(keys, maintain_order=True):
        rows = rows.sort("step", "learner")
        about = rows.row(0, named=True)
        evaluations: list[dict[str, Any]] = [
            {
                **own.row(0, named=True),
                "learner_returns": [[mean] for mean in own["learner_return"]],
            }
            for _, own in rows.group_by("step", maintain_order=True)
        ]
        # What was to be run is not in the table, only whether it was run to the end.
        steps = evaluations[-1]["step"] + (not about["complete"])
        config = {name: about[name] for name in ("scheme", "algorithm", "preset", "seed")}
        runs.append(
            RunResult(
                path=Path(about["run"]),
                **{name: about[name] for name in keys},
                config={**config, "steps": steps},
                evaluations=evaluations,
                paper=about["paper"],
            )
        )
        earned = {
            policy: [about[policy]] for policy in ("idle", "random") if about[policy] is not None
        }
        if earned:
            references[about["env"]] = Reference({}, earned)
    notes = ["made from an exported table, which has few settings and nothing about the chief"]
    return Results(title, runs, notes, references=references)


def export_results(folder: Path | str, out: Path | str, also: Sequence[Path | str] = ()) -> Path:
    """Write the results of a study folder or of run folders as .parquet or .csv.

    also: exported tables and folders with runs of the same study, from other machines.
    """
    folder, out = Path(folder), Path(out)
    if out.suffix not in SUFFIXES:
        raise UserError(f"results are exported as .parquet or .csv, not {out.name!r}")
    table = load_results(folder, *also)
    table = table.with_columns(run=require_polars().Series(map(_shared, table["run"])))
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".parquet":
        table.write_parquet(out)
    else:
        table.write_csv(out)
    return out


def _shared(run: str) -> str:
    """Where a run is, without what an absolute path tells of its machine: below its study."""
    path = Path(run)
    return str(Path(*path.parts[-3:]) if path.is_absolute() else path)


def load_results(*paths: Path | str) -> Any:
    """Results as a polars DataFrame, from exported tables and from run and study folders.

    A run that is in several of them counts once: where it got furthest.
    """
    polars, given = require_polars(), [Path(path) for path in paths]
    files = [path for path in given if path.suffix in SUFFIXES and path.is_file()]
    folders = [path for path in given if path not in files]
    tables = [tidy(read_results(folders))] if folders else []
    tables += [_read_table(path) for path in files]
    if len(tables) == 1:
        return tables[0]
    run = ["method", "env", "seed"]
    sources = [table.with_columns(source=index) for index, table in enumerate(tables)]
    joined = polars.concat(sources, how="diagonal_relaxed")
    furthest = joined.group_by(*run, "source").agg(last=polars.col("step").max())
    # The first of those that got as far as any.
    furthest = furthest.sort("last", "source", descending=[True, False])
    kept = furthest.unique(run, keep="first", maintain_order=True).select(*run, "source")
    return joined.join(kept, on=[*run, "source"], how="semi", maintain_order="left").drop("source")


def _read_table(path: Path) -> Any:
    polars = require_polars()
    read = polars.read_parquet if path.suffix == ".parquet" else polars.read_csv
    try:
        table = read(path)
    except (polars.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    missing = next((name for name in (*NEEDED, "score") if name not in table.columns), None)
    if missing is not None:
        raise UserError(f"{path} was not exported by p3s: it has no column {missing!r}")
    return table
