"""Some learners with all that they need: environments, experience, updater, guard.

    play, until the next stop
        a stretch of a backlog of updates, if there is one; otherwise for every time step
            act, step the environment copies                     updater, environments
            store the transitions                                experience
            the updates that are due                             updater
        a review that is due ends the stretch: it is the chief's

An unsplit run has one crew in this process. A run over shards has a crew that is made of others
(`cluster/shards.py`): each has a part of the learners, and what they collect goes by way of an
exchange. To the training loop they look alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from p3s import keys
from p3s.config.run import Config
from p3s.envs import Adapter
from p3s.envs.workers import make_copies
from p3s.experience.data import Data
from p3s.experience.kinds import make_experience
from p3s.experience.normalization import NoNormalizer, RunningMoments, Scaling
from p3s.learning.counters import Counters
from p3s.learning.divergence import diverged_learners, parts_of, with_copy
from p3s.learning.health import Checkup, Signs
from p3s.learning.metrics import Window
from p3s.learning.updater import Updater
from p3s.schemes.base import Decision
from p3s.trees import pick, unstack
from p3s.types import EnvSpec, Episode, Params, Transition


class Played(NamedTuple):
    """What a crew tells of a stretch."""

    episodes: list[tuple[int, Episode]]
    """Finished training episodes with their time steps."""
    lost: list[int]
    """Copies that lost their episode."""
    review: bool
    """Whether the chief's review is due."""


class Crew:
    """Learners of a population: all of them, or those of a part.

    overlap: let updates run while the environments step; results do not depend on it.
    data: transitions from before the run that minibatches hold too.
    """

    stops_anywhere = True
    """Whether it costs little to stop at every time step."""
    stride = 1
    """Time steps after which those who only look may look again."""
    learns_at_once = True
    """Whether the updates of a step follow it, or wait for what others collected."""

    def __init__(
        self,
        config: Config,
        make: Callable[[], Adapter],
        spec: EnvSpec,
        part: range | None = None,
        overlap: bool = True,
        data: Data | None = None,
    ) -> None:
        options, scheme, algorithm = config.options, config.scheme, config.algorithm
        self.scheme, self.spec, self._seed = scheme, spec, options.seed
        each = scheme.envs_per_learner
        self._learners = range(scheme.num_envs // each) if part is None else part
        self._first = self._learners.start
        whole = range(scheme.num_envs)
        self.copies = whole if part is None else whole[part.start * each : part.stop * each]
        """The environment copies, numbered as in the whole population."""
        self.counters = Counters()
        normalized = algorithm.normalize_observations
        self.normalizer = RunningMoments(spec) if normalized else NoNormalizer()
        self.experience = self._make_experience(config, make, part, data)
        self.environments = make_copies(
            make, self.copies, options.seed, options.env_workers, options.env_restarts,
            options.env_step_limit,
        )  # fmt: skip
        self.updater = Updater(
            scheme, spec, options.seed, self.experience, self.normalizer, self.counters,
            overlap, options.devices, part,
        )  # fmt: skip
        self._replaces = options.on_divergence == "replace"
        self.updater.metrics.stops = not self._replaces
        self.rhythm = scheme.rhythm()
        self._checkup = Checkup(scheme, spec, self.experience)
        self._due: int | None = None
        """Updates that the last step made due, until they are done."""
        self._ended: list[int] = []
        """The copies whose episodes ended with the last step."""
        self.seconds, self.stepping_seconds = 0.0, 0.0

    def _make_experience(
        self, config: Config, make: Callable[[], Adapter], part: range | None, data: Data | None
    ) -> Any:
        """What these learners learn from."""
        own = slice(None) if part is None else slice(part.start, part.stop)
        return make_experience(config, self.spec, self.normalizer, make, own, data)

    # ------------------------------------------------------------------ work

    def start_from(self, policy: Params, learners: Sequence[int]) -> None:
        """Let these learners start from a policy, before the first step."""
        state = self.scheme.with_start(self.updater.state, policy, learners)
        self.updater.state = self.updater.program.place(state)

    def start(self) -> None:
        """Begin the first episodes."""
        self.environments.start()

    def next_stop(self) -> float:
        """The total step at which the crew has to hear from the loop, if there is one."""
        return math.inf

    @property
    def before_learning(self) -> str:
        """What it does until it learns; empty from then on."""
        return "" if self.counters.updates else "collecting, then compiling the update"

    def play(self, until: int, end: int, stopping: Callable[[], bool] | None = None) -> Played:
        """Play to this many environment steps of the population, or to a review.

        end: of the run. stopping: asked after every time step whether to break off.
        """
        started = time.perf_counter()
        episodes: list[tuple[int, Episode]] = []
        lost, review = list[int](), False
        self.learn()
        if not self.updater.run_backlog():
            while self.counters.total_steps < until and not review:
                self.learn()
                ended, review = self._step(end)
                episodes += [(self.counters.time_step, episode) for episode in ended]
                lost += self._take_lost()
                if self.learns_at_once:
                    self.learn()
                if stopping is not None and stopping():
                    break
        self.seconds += time.perf_counter() - started
        return Played(episodes, lost, review)

    def _step(self, end: int) -> tuple[list[Episode], bool]:
        """One time step: the episodes that ended, and whether a review is due."""
        counters, environments = self.counters, self.environments
        counters.time_step += 1
        active = self._active(end)
        self._count_observations(active)
        actions = self.updater.actions(environments.observations)
        due = self.rhythm.updates_after(counters.time_step)
        self.updater.run_ahead(due, self._num_pending(len(active)))
        actions = self._sound(jax.device_get(actions))
        started = time.perf_counter()
        transitions, episodes = environments.step(actions, active)
        self.stepping_seconds += time.perf_counter() - started
        self._ended = [episode.copy for episode in episodes]
        if environments.lost:
            self.experience.cut()
        self._store(transitions, active.tolist())
        counters.total_steps += self._num_stepped(len(active))
        after = self.rhythm.after(counters.time_step, active, self._ended)
        self.updater.begin_backlog(after.backlog)
        self._due = after.updates
        return episodes, after.review

    def _active(self, end: int) -> np.ndarray:
        """The copies that step now."""
        return self.rhythm.active(end - self.counters.total_steps)

    def _count_observations(self, active: np.ndarray) -> None:
        """Count what is acted on now, where observations are normalized."""
        self.normalizer.see(self.environments.observations[active])

    def _num_pending(self, num_active: int) -> int:
        """Rows that will be stored before the updates after this step."""
        return num_active

    def _store(self, transitions: Transition, active: list[int]) -> None:
        self.experience.add(transitions, active, self._ended)

    def _num_stepped(self, num_active: int) -> int:
        """Environment steps of the whole population at this time step."""
        return num_active

    def _take_lost(self) -> list[int]:
        """Copies that lost their episode since the last look."""
        lost, self.environments.lost = self.environments.lost, []
        return lost

    def learn(self) -> None:
        """The updates after the last step, unless they were done."""
        if self._due is None:
            return
        self.updater.update(self._due, self.environments.observations)
        self.updater.end_episodes(self._ended)
        self._due = None

    def catch_up(self) -> None:
        """Do the updates that are still due, before the learners are looked at."""
        started = time.perf_counter()
        self.learn()
        self.seconds += time.perf_counter() - started

    # ------------------------------------------------------------------ divergence

    def _sound(self, actions: np.ndarray) -> np.ndarray:
        """The actions; random ones where they are not finite and learners may be replaced."""
        if not self._replaces or np.isfinite(actions).all():
            return actions
        bad = np.flatnonzero(~np.isfinite(actions).all(axis=1))
        name = self._seed, "replacing_action", self.counters.time_step
        shape = self.scheme.num_envs, *actions.shape[1:]
        drawn = keys.generator(*name).uniform(-1, 1, shape).astype(actions.dtype)
        actions = np.array(actions)
        actions[bad] = drawn[self.copies.start : self.copies.stop][bad]
        return actions

    def diverged(self) -> list[int]:
        """The learners with a parameter or an action that is not finite."""
        found = set(diverged_learners(self.scheme, self.updater.state))
        if self._replaces:
            actions = jax.device_get(self.updater.actions(self.environments.observations))
            bad = np.flatnonzero(~np.isfinite(actions).all(axis=1))
            found |= set((bad // self.scheme.envs_per_learner).tolist())
        return [self._first + place for place in sorted(found)]

    def whole_learner(self, learner: int) -> dict[str, Any]:
        """Everything that a learner is, on the host."""
        return parts_of(self.scheme, self.updater.state, learner - self._first)

    def replace(self, learners: list[int], source: int, parts: Any = None) -> None:
        """Put perturbed copies of a learner in the place of those of these that live here.

        parts: all of that learner, if it may live elsewhere.
        """
        parts = self.whole_learner(source) if parts is None else parts
        for learner in set(learners) & set(self._learners):
            rng = keys.generator(self._seed, "replacement", self.counters.time_step, learner)
            place = learner - self._first
            state = with_copy(self.scheme, self.updater.state, place, parts, rng)
            self.updater.state = self.updater.program.place(state)

    # ------------------------------------------------------------------ the chief

    def review(self, recent_returns: np.ndarray) -> dict[str, Any]:
        """Let the chief look at the learners, who are all here; a row of the lineage."""
        rng, observations = self._for_review()
        state, row = self.scheme.review(self.updater.state, recent_returns, observations, rng)
        self.updater.state = self.updater.program.place(state)
        return row

    def report(self) -> tuple[dict[str, Any], np.random.Generator]:
        """What the chief is told of these learners; and a generator for its decision."""
        rng, observations = self._for_review()
        return jax.device_get(self.scheme.report(self.updater.state, observations)), rng

    def _for_review(self) -> tuple[np.random.Generator, np.ndarray]:
        rng = keys.generator(self._seed, "review", self.counters.time_step)
        return rng, self.experience.observations(rng)

    def offer(self, learner: int) -> Params:
        """What others take over from one of these learners."""
        offer = self.scheme.offer(self.updater.state, learner - self._first)
        return jax.device_get(offer)

    def apply(self, decision: Decision, offers: dict[int, Params]) -> None:
        """Do what the chief has decided."""
        state = self.scheme.apply(self.updater.state, decision, offers)
        self.updater.state = self.updater.program.place(state)

    # ------------------------------------------------------------------ evaluation, records

    def champions(self) -> list[Params]:
        """The policies that the run is judged by, one by one, on the host."""
        return unstack(self.scheme.champions(self.updater.state))

    def policy(self, learner: int) -> Params:
        """The policy of one of these learners, on the host."""
        champions = self.scheme.champions(self.updater.state)
        return jax.device_get(pick(champions, learner - self._first))

    @property
    def scaling(self) -> Scaling | None:
        """What observations are normalized by now."""
        return self.normalizer.scaling

    @property
    def exact_resume(self) -> bool:
        """Whether a checkpoint holds the episodes in progress."""
        return self.environments.exact_resume

    def signs(self) -> list[Signs]:
        """What is seen of these learners' health, by their metrics since those were last taken."""
        self.updater.settle()
        means, updates = self.updater.metrics.means(), self.counters.updates
        return [self._checkup.signs(self.updater.state, means, updates)]

    def take_metrics(self) -> Window:
        """The metrics since they were last taken."""
        self.updater.settle()
        window = self.updater.metrics.snapshot()
        self.updater.metrics.clear()
        return window

    def about_parts(self) -> dict[str, Any]:
        """What a row of metrics says of the parts of this crew, if it has any."""
        return {}

    # ------------------------------------------------------------------ out and in

    @property
    def _parts(self) -> dict[str, Any]:
        """What a checkpoint holds of a crew, in the order in which it is resumed."""
        return {
            "counters": self.counters,
            "environments": self.environments,
            "experience": self.experience,
            "normalizer": self.normalizer,
            "rhythm": self.rhythm,
            "state": self.updater,
            "metrics": self.updater.metrics,
        }

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Values from which `resume` continues; everything due was done."""
        self.updater.settle()
        return {name: part.snapshot() for name, part in self._parts.items()}

    def resume(self, snapshot: dict[str, dict[str, Any]]) -> None:
        """Continue from a snapshot; the replay's rows are already in place."""
        if not self.resume_parts(snapshot):
            self.experience.cut()

    def resume_parts(self, snapshot: dict[str, dict[str, Any]]) -> bool:
        """`resume`, but for what follows if episodes in progress do not go on: whether they do."""
        for name, part in self._parts.items():
            part.resume(snapshot.get(name, {}))
        return self.environments.continued

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()
