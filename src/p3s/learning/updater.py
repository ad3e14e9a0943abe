"""The learners of a run and everything that changes them: updates, reviews, running ahead.

What is random follows from seed, name and number, so the minibatches of an update are known
before the step that makes it due. Three things overlap with the environments' work, without
changing any result; `overlap=False` does without them:

    run ahead     updates whose minibatches hold no transition of the pending step are
                  dispatched before that step
    act ahead     an update that leaves the policies as they are need not finish before the
                  next actions are computed
    late metrics  an update's metrics are read while the device works on the next one
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import jax
import numpy as np

from p3s import keys
from p3s.envs.masked_observations import allowed_only, split_mask
from p3s.experience import Batches, Experience
from p3s.experience.normalization import Normalizer, normalize
from p3s.learning.counters import Counters
from p3s.learning.metrics import MetricsWindow
from p3s.learning.program import Pattern, Program, repeated_unit
from p3s.schemes import Scheme
from p3s.trees import flatten_names, unflatten_names
from p3s.types import EnvSpec

BACKLOG_STRETCH = 16
"""Updates of a backlog that are compiled as one call; a callback may stop the run in between."""
LONGEST_UNIT = 8
"""The updates of a pattern's unit are compiled one by one: a longer unit takes minutes, and is
run as equal updates one after another instead."""


class Updater:
    """Owns the learners' state, the compiled program and the update counters.

    part: the learners that are trained here, with their environment copies, if not all.
    """

    def __init__(
        self,
        scheme: Scheme,
        spec: EnvSpec,
        seed: int,
        experience: Experience,
        normalizer: Normalizer,
        counters: Counters,
        overlap: bool = True,
        num_devices: int | None = None,
        part: range | None = None,
    ) -> None:
        self.scheme, self._spec, self._seed = scheme, spec, seed
        self._experience, self._normalizer, self._counters = experience, normalizer, counters
        self._overlap = overlap
        each = scheme.envs_per_learner
        own = slice(None) if part is None else slice(part.start * each, part.stop * each)
        self._copies = own
        self.program = Program(scheme, spec, seed, experience.unpack, num_devices, part)
        self.state: Any = self.program.start()
        self.metrics = MetricsWindow(0 if part is None else part.start)
        self._done_early = 0
        self._unread: tuple[Pattern, list[jax.Array]] | None = None
        self._acted_ahead: tuple[Any, np.ndarray | jax.Array] | None = None

    # ------------------------------------------------------------------ acting

    def actions(self, observations: np.ndarray) -> np.ndarray | jax.Array:
        """An action for every environment copy at the present step."""
        ahead, self._acted_ahead = self._acted_ahead, None
        if ahead is not None and ahead[0] is self.state:
            return ahead[1]
        return self._actions(observations, self._counters.time_step)

    def _actions(self, observations: np.ndarray, time_step: int) -> np.ndarray | jax.Array:
        """The actions of a step, without waiting for them."""
        if time_step <= self.scheme.num_random_steps:
            return self.random_actions(observations, time_step)
        seen = normalize(observations, self._normalizer.scaling)
        return self.program.act(self.state, seen, time_step)

    def random_actions(self, observations: np.ndarray, time_step: int) -> np.ndarray:
        """A uniformly random action for every environment copy; observations: for their masks."""
        rng = keys.generator(self._seed, "random_action", time_step)
        count, size = self.scheme.num_envs, self._spec.action_size
        if self._spec.masked:
            _, mask = split_mask(observations, self._spec.features.shape)
            chances = np.asarray(rng.random((count, size)))[self._copies]
            return np.asarray(allowed_only(chances, mask)).argmax(axis=1)
        if self._spec.discrete:
            return rng.integers(0, size, count)[self._copies]
        return rng.uniform(-1, 1, (count, size)).astype(np.float32)[self._copies]

    # ------------------------------------------------------------------ learning

    def run_ahead(self, due: int, num_pending: int) -> None:
        """Begin the updates due after this step, unless they need a pending transition."""
        self._done_early = self._learn_all(due, num_pending) if self._overlap else 0

    def update(self, due: int, observations: np.ndarray) -> None:
        """The updates due after a step that were not done early.

        observations: what the environment copies show now, to act on while the device works.
        """
        left = due - self._done_early
        if left == 0:
            return
        ahead = None
        # On several devices a program waits for the one before it, even if it needs none of it.
        if self._overlap and self._normalizer.scaling is None and not any(self._pattern(left)):
            ahead = self._actions(observations, self._counters.time_step + 1)
        self._learn_all(left)
        if ahead is not None:
            self._acted_ahead = (self.state, ahead)

    def begin_backlog(self, due: int) -> None:
        """Take on updates that have to be done before the next step."""
        self._counters.backlog, self._counters.backlog_done = due, 0

    def run_backlog(self) -> bool:
        """Some updates of the backlog; False if there was none."""
        left = self._counters.backlog - self._counters.backlog_done
        if left <= 0:
            return False
        pattern = self._pattern(BACKLOG_STRETCH)
        sizes = {self.scheme.num_batches(with_policy) for with_policy in pattern}
        # One pattern, so that one program is compiled; and all rows fit into one array.
        aligned = self._counters.updates % len(repeated_unit(pattern)) == 0
        whole = left >= BACKLOG_STRETCH and aligned and len(sizes) == 1
        count = BACKLOG_STRETCH if whole else 1
        self._learn(count)
        self._counters.backlog_done += count
        return True

    def _pattern(self, count: int) -> Pattern:
        """For each of the next updates, whether it includes a policy step."""
        first, done = self._counters.updates + 1, self._counters.backlog_done
        return tuple(
            self.scheme.with_policy(first + index, done + index, self._counters.backlog)
            for index in range(count)
        )

    def _learn_all(self, due: int, num_pending: int = 0) -> int:
        """The updates due, up to the first that needs a pending transition; how many were done."""
        pattern = self._pattern(due)
        stretches = [due] if due else []
        if due and len(repeated_unit(pattern)) > LONGEST_UNIT:
            stretches = [len(list(run)) for _, run in groupby(pattern)]
        done = 0
        for count in stretches:
            if not self._learn(count, num_pending):
                break
            done += count
        return done

    def _learn(self, count: int, num_pending: int = 0) -> bool:
        """This many updates as one compiled call, unless they need a pending transition."""
        pattern, first = self._pattern(count), self._counters.updates + 1
        sizes = [self.scheme.num_batches(with_policy) for with_policy in pattern]
        batches: list[Batches] = []
        for index, size in enumerate(sizes):
            taken = self._experience.take(first + index, size, num_pending)
            if taken is None:
                return False
            batches.append(taken)
        self.state, metrics = self.program.learn(self.state, batches, first, pattern)
        self._counters.updates += count
        self._counters.total_updates += sum(sizes)
        # The device is at work now: meanwhile read the metrics of the stretch before this one.
        self.settle()
        self._unread = (pattern, metrics)
        if not self._overlap:
            self.settle()
        return True

    def settle(self) -> None:
        """Read the last metrics, which waits for their updates; a non-finite one stops the run."""
        if self._unread is None:
            return
        pattern, metrics = self._unread
        self._unread = None
        unit, names = repeated_unit(pattern), self.program.metric_names(pattern)
        read = [np.asarray(values) for values in metrics]
        for repeat in range(len(pattern) // len(unit)):
            for own_names, values in zip(names, read, strict=True):
                self.metrics.add(own_names, values[repeat])

    def end_episodes(self, ended: list[int]) -> None:
        """Tell the scheme whose episodes ended with this step, after its updates."""
        if ended and self.scheme.follows_episodes:
            mask = np.isin(np.arange(self.scheme.num_envs), ended)
            self.state = self.program.end_episodes(self.state, mask)

    # ------------------------------------------------------------------ out and in

    def snapshot(self) -> dict[str, Any]:
        """Arrays from which `resume` continues."""
        self.settle()
        leaves = jax.device_get(flatten_names(self.state))
        return {name: np.asarray(leaf) for name, leaf in leaves.items()}

    def resume(self, values: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.state = self.program.place(unflatten_names(self.state, values, "the checkpoint"))
