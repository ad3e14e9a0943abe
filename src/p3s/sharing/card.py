"""The card of a shared policy: what the Hub reads of it, and what people read."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from p3s.envs import EnvName
from p3s.policies.hub import HubName, require_hub
from p3s.runs.trust import modules_in

TASK = "reinforcement-learning"
LIBRARY = "p3s"


def card_text(
    name: HubName, record: dict[str, Any], results: dict[str, Any], has_curve: bool
) -> str:
    """The card as Markdown, with its metadata in front."""
    env = EnvName.from_json(results["environment"])
    score = f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
    body = _template().render(
        name=name,
        record=record,
        versions=record["versions"] if isinstance(record.get("versions"), dict) else {},
        results=results,
        env=env,
        modules=dict.fromkeys(modules_in(env.to_json())),
        score=score,
        has_curve=has_curve,
    )
    return f"---\n{_metadata(record, env, score)}\n---\n\n{body}"


def _metadata(record: dict[str, Any], env: EnvName, score: str) -> str:
    """The Hub's metadata as YAML; leaderboards read the environment's id and `mean_reward`."""
    hub = require_hub()
    method = f"{record['scheme']}-{record['algorithm']}"
    result = hub.EvalResult(
        task_type=TASK,
        task_name=TASK,
        dataset_type=env.id,
        dataset_name=env.id,
        metric_type="mean_reward",
        metric_name="mean_reward",
        metric_value=score,
        verified=False,
    )
    data = hub.ModelCardData(
        library_name=LIBRARY,
        pipeline_tag=TASK,
        tags=[env.id, "deep-" + TASK, TASK, LIBRARY, record["scheme"], record["algorithm"]],
        model_name=method,
        eval_results=[result],
    )
    return data.to_yaml()


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown: `code` keeps values of files in their place
    )
    environment.filters["code"] = _code
    return environment.get_template("card.md.j2")


def _code(value: Any) -> str:
    """A value as code of one line, which a value of a stranger's file cannot leave."""
    return "`" + re.sub(r"[`|\s]+", " ", str(value)).strip() + "`"
