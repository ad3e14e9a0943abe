"""Throughput of p3s beside Stable-Baselines3, SBX and the machine's matrix-product limit.

    make bench      or      python benchmarks/throughput.py [--rounds 8] [--seconds 2] [--only NAME]
    python benchmarks/throughput.py --before CHECKOUT        two versions of p3s in turns

TD3 on HalfCheetah-v5, networks 400-300, batch 100, one update per environment step of a learner,
10,000 random steps before the first update (the paper's T_initial), unless a case says otherwise.
Steps/s are environment steps over all learners; with one update per step they equal
learner-updates/s.

Every case is a process of its own. The cases of a group are started one after another and then take
turns, all others standing still, since a machine's speed may change within minutes. The first
second of a turn does not count. Rates are medians over the rounds, ratios medians of the ratios
within a round.

    training          the whole loop, nothing evaluated
    updates           compiled updates alone
    small             networks 64-64 on Hopper-v5; p3s makes N updates of each learner per own step
    slow environment  a simulator that sleeps 5 ms, 16 copies, before anything is learned
    one evaluation    50 episodes of HalfCheetah-v5, nothing else running
    evaluated         10 episodes every 4000 steps: the paper's protocol (every learner and the
                      champion again), SB3's EvalCallback; a turn is one period

--before takes another checkout of p3s, whose own copy of this script measures its p3s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from p3s.config.run import resolve
from p3s.envs import make_env
from p3s.learning import devices
from p3s.train import Training

ENV = "HalfCheetah-v5"
OBSERVATION, ACTION, HIDDEN, BATCH = 17, 6, (400, 300), 100
RANDOM_STEPS, EVALUATION_PERIOD, EVALUATION_EPISODES = 10_000, 4000, 10
SLEEP, SLEEPING_COPIES = 0.005, 16
FOREVER = 10**9
CHECKOUT = Path(__file__).resolve().parent.parent
BEFORE = ", before"
"""What the name of a case of another checkout ends with."""
WARM_UP = 1.0
"""Seconds of a turn before it counts: memory that was not used for long may have to come back."""


def p3s_case(count: int, mode: str = "training", env: str = ENV, **fields: Any) -> list[str]:
    return ["p3s", json.dumps({"count": count, "mode": mode, "env": env, "fields": fields})]


def peer_case(library: str, mode: str = "training") -> list[str]:
    return ["peer", library, mode]


SMALL = {"env": "Hopper-v5", "hidden_sizes": (64, 64), "updates_per_step": 4}
SLOW = {"mode": "stepping", "env": "throughput:Sleeping-v0", "hidden_sizes": (64, 64)}
GROUPS: dict[str, dict[str, list[str]]] = {
    "training": {
        "limit": ["limit"],
        "sb3": peer_case("sb3"),
        "sbx": peer_case("sbx"),
        **{f"p3s N={count}": p3s_case(count) for count in (1, 2, 4, 8, 16)},
        "p3s N=4, bfloat16": p3s_case(4, precision="bfloat16"),
        "p3s N=4, updates alone": p3s_case(4, "updates"),
    },
    "updates": {
        "N=4": p3s_case(4, "updates"),
        **{
            f"N=4, {estimate}": p3s_case(4, "updates", distance_estimate=estimate)
            for estimate in ("every_minibatch", "policy_minibatches")
        },
        "N=4, bfloat16": p3s_case(4, "updates", precision="bfloat16"),
        "N=16": p3s_case(16, "updates"),
        "N=64": p3s_case(64, "updates"),
    },
    "small": {"sb3": peer_case("sb3", "small"), "p3s N=4": p3s_case(4, **SMALL)},
    "slow environment": {
        "sb3, SubprocVecEnv": peer_case("sb3", "slow"),
        "p3s N=16": p3s_case(SLEEPING_COPIES, **SLOW),
        "p3s N=16, 16 workers": p3s_case(SLEEPING_COPIES, **SLOW, env_workers=SLEEPING_COPIES),
    },
    "one evaluation": {
        "in this process": p3s_case(4, "evaluation", evaluation_workers=0),
        "2 workers": p3s_case(4, "evaluation", evaluation_workers=2),
    },
    "evaluated": {
        "sb3, evaluated": peer_case("sb3", "evaluated"),
        **{
            f"p3s N={count}{how}": p3s_case(count, mode)
            for count in (4, 16)
            for how, mode in (("", "training"), (", evaluated", "evaluated"))
        },
    },
}
GOALS = (
    ("N=4 / SB3", "training", "p3s N=4", "sb3", 3.2),
    ("N=4 / SBX", "training", "p3s N=4", "sbx", 2.1),
    ("N=4 / products of its shape", "training", "p3s N=4", "limit", 0.88),
    ("N=4, bfloat16 / SB3", "training", "p3s N=4, bfloat16", "sb3", 4.2),
    ("loop / updates alone, N=4", "training", "p3s N=4", "p3s N=4, updates alone", 0.94),
    ("evaluated, N=4 / SB3 evaluated", "evaluated", "p3s N=4, evaluated", "sb3, evaluated", 2.8),
    ("evaluated / not, N=4", "evaluated", "p3s N=4, evaluated", "p3s N=4", 0.85),
    ("evaluated / not, N=16", "evaluated", "p3s N=16, evaluated", "p3s N=16", 0.60),
    ("one evaluation, 2 workers / none", "one evaluation", "2 workers", "in this process", 1.8),
    ("N=64 / N=16, updates", "updates", "N=64", "N=16", 0.95),
    ("every_minibatch / period_end", "updates", "N=4, every_minibatch", "N=4", 0.95),
    ("policy_minibatches / period_end", "updates", "N=4, policy_minibatches", "N=4", 0.95),
    ("64-64, N updates, steps/s", "small", "p3s N=4", None, 1000),
    ("64-64, N updates / SB3, 1 update", "small", "p3s N=4", "sb3", None),
    ("sleeping, 16 workers / none", "slow environment", "p3s N=16, 16 workers", "p3s N=16", 12),
    ("sleeping, 16 workers / SubprocVecEnv", "slow environment", "p3s N=16, 16 workers",
     "sb3, SubprocVecEnv", 1),
)  # fmt: skip
"""What is compared, in which group, with what, and the ratio (or rate) to reach."""


class Sleeping(gymnasium.Env):
    """A simulator that takes five milliseconds for a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 8).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        time.sleep(SLEEP)
        observation = self.np_random.uniform(-1, 1, 8).astype(np.float32)
        return observation, float(action[0]), False, False, {}


gymnasium.register("Sleeping-v0", Sleeping, max_episode_steps=200)


def flops_per_update(guided: bool) -> float:
    """Floating-point operations in the matrix products of one learner's average update."""
    first, second = HIDDEN
    policy = OBSERVATION * first + first * second + second * ACTION
    value = (OBSERVATION + ACTION) * first + first * second + second
    policy_hidden, value_hidden = first * second + second * ACTION, first * second + second
    # Value step: target policy, two target values, two values; back: weights and hidden inputs.
    value_step = policy + 2 * value + 2 * value + 2 * (value + value_hidden)
    # Policy step, every second update: policy, value, back through the value to the action and
    # through the policy; the guide forward.
    policy_step = policy + value + value + policy + policy_hidden + (policy if guided else 0)
    return 2 * BATCH * (value_step + policy_step / 2)


class Turns:
    """Waits for its turn on standard input, and answers with what it measured."""

    def __init__(self) -> None:
        self._started, self._first, self._seconds = 0.0, 0, 0.0

    def begin(self, steps: int) -> bool:
        """Wait for a turn, which starts at this many steps; False when there will be none."""
        line = sys.stdin.readline()
        if not line:
            return False
        self._seconds, self._first = float(line), steps
        self._started = time.perf_counter()
        return True

    @property
    def over(self) -> bool:
        return time.perf_counter() - self._started >= self._seconds

    def rate(self, steps: int) -> float:
        """Steps per second in this turn so far."""
        return (steps - self._first) / (time.perf_counter() - self._started)


def answer(result: dict) -> None:
    print(json.dumps(result), flush=True)


def serve_limit() -> None:
    """The fastest fp32 matrix products: large square ones, and those of the networks' own shape."""

    def rate(left: tuple, right: tuple, flops: float) -> Callable[[float], float]:
        draw = np.random.default_rng(0)
        a, b = (jnp.asarray(draw.random(shape), jnp.float32) for shape in (left, right))
        product = jax.jit(jnp.matmul)
        product(a, b).block_until_ready()

        def measure(seconds: float) -> float:
            count, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                product(a, b).block_until_ready()
                count += 1
            return count * flops / (time.perf_counter() - started) / 1e9

        return measure

    first, second = HIDDEN
    square = rate((2000, 2000), (2000, 2000), 2 * 2000**3)
    own = rate((8, BATCH, first), (8, first, second), 2 * 8 * BATCH * first * second)
    answer({"ready": True})
    for line in sys.stdin:
        seconds = float(line) / 2
        answer({"square_gflops": square(seconds), "own_shape_gflops": own(seconds)})


def serve_p3s(count: int, mode: str, env: str, fields: dict) -> None:
    """A training, evaluated or not, or its compiled updates, environments or evaluations alone."""
    devices.prepare()
    evaluated, period = mode == "evaluated", EVALUATION_PERIOD
    initial = FOREVER if mode == "stepping" else RANDOM_STEPS // count
    options = {"initial_steps": initial, "evaluation_period": period if evaluated else 0, **fields}
    if evaluated:
        options["evaluation_workers"] = os.cpu_count()
    config = resolve(env, preset="paper", num_learners=count, **options)
    training = Training(config, partial(make_env, env))

    def within_period(now: Training) -> bool:
        """A turn begins with an evaluation and ends before the next one; a run waits for it."""
        return (now.total_steps + count) % period >= count

    if mode in ("updates", "evaluation", "stepping"):
        # A champion needs a whole episode.
        own_steps = {"updates": RANDOM_STEPS // count + 4, "evaluation": 1001, "stepping": 20}[mode]
        training.run(count * own_steps)
        answer({"ready": True})
        other = {"updates": serve_updates, "evaluation": serve_evaluation}.get(mode)
        if other is not None:
            other(training, Turns())
            return
    else:
        # What is compiled at the first update, evaluation and review of the chief is behind us.
        training.run(FOREVER, lambda now: not now.last_review)
        if evaluated:
            training.run(FOREVER, within_period)
        answer({"ready": True})
    turns = Turns()
    while turns.begin(training.total_steps):
        training.run(FOREVER, lambda now: not turns.over or (evaluated and within_period(now)))
        jax.block_until_ready(training.crew.updater.state)
        report(turns.rate(training.total_steps), guided=True, counted=env == ENV)


def serve_evaluation(training: Training, turns: Turns) -> None:
    """Whole evaluations of untrained learners, whose episodes last as long as those of others."""
    training.evaluate()  # workers are started, everything is compiled
    while turns.begin(0):
        training.evaluate()
        answer({"steps_per_second": turns.rate(1)})


def serve_updates(training: Training, turns: Turns) -> None:
    while turns.begin(0):
        report(turns.rate(update_until(training, lambda: turns.over)), guided=True)


def update_until(training: Training, over: Callable[[], bool]) -> int:
    """Updates of one set of minibatches, each dispatched before the one before it is done.

    How many learner-updates there were; every second one had a policy step.
    """
    count, updater = training.scheme.num_learners, training.crew.updater
    batches = training.experience.take(1, count, num_pending=0)
    assert batches is not None
    state, number, before = updater.state, 0, None
    while number % 2 or not over():
        number += 1
        state, metrics = updater.program.learn(state, [batches], number, (number % 2 == 0,))
        if before is not None:
            jax.block_until_ready(before)
        before = metrics
    updater.state = jax.block_until_ready(state)
    return number * count


def serve_peer(name: str, mode: str) -> None:
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
    from stable_baselines3.common.vec_env import SubprocVecEnv

    options: dict = {}
    if name == "sb3":
        import torch
        from stable_baselines3 import TD3

        torch.set_num_threads(os.cpu_count() or 1)
        options["device"] = "cpu"
    else:
        from sbx import TD3
    env: Any = gymnasium.make("Hopper-v5" if mode == "small" else ENV)
    hidden, random_steps = (64, 64) if mode in ("small", "slow") else HIDDEN, RANDOM_STEPS
    if mode == "slow":
        env, random_steps = SubprocVecEnv([Sleeping] * SLEEPING_COPIES), FOREVER
    first = 300 if mode == "slow" else random_steps + 300
    period = EVALUATION_PERIOD if mode == "evaluated" else 1

    class TakeTurns(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.turns, self.started = Turns(), False

        def _on_step(self) -> bool:
            steps = self.num_timesteps
            if steps < first or (period > 1 and steps % period != 1):
                return True
            if self.started and not self.turns.over:
                return True
            if self.started:
                report(self.turns.rate(steps), guided=False, counted=hidden == HIDDEN)
            else:
                answer({"ready": True})
            self.started = True
            return self.turns.begin(steps)

    callbacks: list[BaseCallback] = [TakeTurns()]
    if mode == "evaluated":
        played = gymnasium.make(ENV)
        callbacks.append(
            EvalCallback(played, n_eval_episodes=EVALUATION_EPISODES, eval_freq=period, verbose=0)
        )
    model = TD3(
        "MlpPolicy", env, learning_starts=random_steps, train_freq=1, gradient_steps=1,
        batch_size=BATCH, policy_kwargs={"net_arch": list(hidden)}, seed=0, **options,
    )  # fmt: skip
    model.learn(FOREVER, callback=CallbackList(callbacks))


def report(rate: float, guided: bool, counted: bool = True) -> None:
    """Answer with a rate, and what it means in operations where the networks are 400-300."""
    operations = {"gflops": rate * flops_per_update(guided) / 1e9} if counted else {}
    answer({"steps_per_second": rate, **operations})


def serve(case: list[str]) -> None:
    match case:
        case ["limit"]:
            serve_limit()
        case ["p3s", options]:
            serve_p3s(**json.loads(options))
        case ["peer", library, mode]:
            serve_peer(library, mode)


class Case:
    """A process that stands still until it has its turn."""

    def __init__(self, case: list[str], checkout: Path) -> None:
        command = [sys.executable, str(checkout / "benchmarks/throughput.py"), "--case", *case]
        pipe, self._said = subprocess.PIPE, tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self._said, text=True,
            env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        )  # fmt: skip
        self.error: str | None = None
        self._read()

    def turn(self, seconds: float, warm_up: float) -> dict:
        """What the case measured in this many seconds, after a while for memory to come back."""
        if warm_up > 0 and not self._turn(warm_up):
            return {}
        return self._turn(seconds)

    def _turn(self, seconds: float) -> dict:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._said.seek(0)
        said = self._said.read().strip().splitlines()
        self.error = said[-1] if said else "failed"
        return {}

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def median_ratio(rounds: list[dict], key: str, others: list[dict], other_key: str) -> float | None:
    """The median of the ratios within a round."""
    ratios = [ours[key] / theirs[other_key] for ours, theirs in zip(rounds, others, strict=False)]
    return statistics.median(ratios) if ratios else None


def rate_key(case: str) -> str:
    return "own_shape_gflops" if case == "limit" else "steps_per_second"


def compare(measured: dict[str, dict[str, list[dict]]]) -> list[dict]:
    """Every comparison that was measured, with its goal."""
    found = []
    for name, group, ours, theirs, goal in GOALS:
        rounds = measured.get(group, {})
        if not rounds.get(ours) or (theirs is not None and not rounds.get(theirs)):
            continue
        if theirs is None:
            value = statistics.median(one["steps_per_second"] for one in rounds[ours])
        else:
            key = "gflops" if theirs == "limit" else "steps_per_second"
            value = median_ratio(rounds[ours], key, rounds[theirs], rate_key(theirs))
        found.append({"comparison": name, "measured": value, "goal": goal})
    for rounds in measured.values():
        for name in [name for name in rounds if rounds.get(name + BEFORE)]:
            value = median_ratio(
                rounds[name], "steps_per_second", rounds[name + BEFORE], "steps_per_second"
            )
            found.append({"comparison": f"{name} / before", "measured": value, "goal": None})
    return found


def table(measured: dict[str, dict[str, list[dict]]], errors: dict[str, str]) -> str:
    """Medians of all cases, group by group, and the comparisons."""
    lines = []
    for group, cases in measured.items():
        lines += ["", group]
        for name, rounds in cases.items():
            if rounds:
                medians = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in medians.items())
                lines.append(f"  {name:<26}{shown}")
    lines += ["", f"{'':<40}{'measured':>9}{'goal':>8}"]
    for row in compare(measured):
        value, goal = row["measured"], row["goal"]
        said = "" if goal is None else "reached" if value >= goal else "missed"
        shown = "" if goal is None else f"{goal:,.4g}"
        lines.append(f"{row['comparison']:<40}{value:>9,.4g}{shown:>8}  {said}".rstrip())
    return "\n".join([*lines, *(f"{name}: {error}" for name, error in errors.items())])


def measure(
    group: dict[str, list[str]],
    before: Path | None,
    rounds: int,
    seconds: float,
    warm_up: float,
    errors: dict[str, str],
) -> dict[str, list[dict]]:
    """What the cases of a group measured, round by round."""
    started = [(name, arguments, CHECKOUT) for name, arguments in group.items()]
    if before is not None:
        p3s = {name: arguments for name, arguments in group.items() if arguments[0] == "p3s"}
        started = [(name, arguments, CHECKOUT) for name, arguments in p3s.items()]
        started += [(name + BEFORE, arguments, before) for name, arguments in p3s.items()]
    cases: dict[str, Case] = {}
    for name, arguments, checkout in started:
        case = Case(arguments, checkout)
        print(f"  {name}: {case.error or 'ready'}", file=sys.stderr, flush=True)
        if case.error is None:
            cases[name] = case
        else:
            errors[name] = case.error
    measured: dict[str, list[dict]] = {name: [] for name in cases}
    for number in range(rounds):
        order = list(cases.items())
        for name, case in order if number % 2 else reversed(order):
            found = case.turn(seconds, warm_up)
            if found:
                measured[name].append(found)
            else:
                errors[name] = case.error or "failed"
                del cases[name]
        said = {name: rounds[-1].get(rate_key(name)) for name, rounds in measured.items() if rounds}
        print(f"  round {number + 1}: {said}", file=sys.stderr, flush=True)
    for case in cases.values():
        case.stop()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="turns of every case")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--only", nargs="+", choices=GROUPS, help="groups to measure")
    parser.add_argument("--before", type=Path, help="another checkout, whose p3s takes turns")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        serve(options.case)
        return
    measured: dict[str, dict[str, list[dict]]] = {}
    errors: dict[str, str] = {}
    for name in options.only or GROUPS:
        print(name, file=sys.stderr, flush=True)
        # A turn of these is a whole period, of the slowest case most of a minute.
        whole = name == "evaluated"
        rounds, warm_up = (min(options.rounds, 3), 0.0) if whole else (options.rounds, WARM_UP)
        measured[name] = measure(
            GROUPS[name], options.before, rounds, options.seconds, warm_up, errors
        )
    machine = {"cores": os.cpu_count(), "system": platform.platform()}
    written = {"machine": machine, "comparisons": compare(measured), "rounds": measured}
    options.out.write_text(json.dumps(written, indent=2) + "\n")
    print(table(measured, errors))


if __name__ == "__main__":
    main()
