"""A stretch of training as one compiled program.

    for every time step of the stretch
        act                               with the policies as they are now, or at random
        step the environment copies       resets included
        store                             in the places of the ring where the host would
        for every update that is due
            gather its minibatches        from places that were drawn before
            learn                         with a policy step or without

Everything is a loop whose length is data: one program plays stretches of any length, so bits do not
depend on where a run stops. Where every step has the same updates, a pass of the inner loop is
their pattern, (value only, with policy). Otherwise each update has a condition that all learners
share, so one branch is computed; that takes a tenth longer.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from p3s.envs.simulation import Copies, Simulation
from p3s.experience.rows import pack_on_device, unpack_transitions
from p3s.learning.devices import compiler_options, library_for
from p3s.learning.rhythm import EveryStep
from p3s.schemes import Scheme
from p3s.types import Array, EnvSpec, Recorded

SOUND, BAD_ACTION, BAD_OBSERVATION, BAD_REWARD = range(4)
"""What was not finite at a step of a copy, the first of them."""
LARGEST = float(np.finfo(np.float32).max)
LONGEST_UNIT = 4
"""The updates of a unit are compiled one by one."""
FAR = 1024
"""Updates that are looked at to find out how they repeat."""


class Keys(NamedTuple):
    """The random streams of a run."""

    act: jax.Array
    learn: jax.Array
    episode: jax.Array


class Moving(NamedTuple):
    """What a stretch changes, on the device."""

    state: Any
    """Of the scheme."""
    now: Copies
    rows: Array
    """Of the replay's ring."""


class Plan(NamedTuple):
    """What is known of a stretch before it begins; arrays are padded to one size."""

    num_steps: Array
    first_step: Array
    """The number of its first time step."""
    place: Array
    """Of the ring, where its first row goes."""
    drawn: Array
    """Random actions, (steps, copies, ...)."""
    due: Array
    """Updates before each time step of the stretch, and in all, (steps + 1,)."""
    first_update: Array
    """The number of its first update."""
    places: Array
    """Of the rows of minibatches, (updates, minibatches, rows)."""
    with_policy: Array
    """Whether an update includes a policy step, (updates,)."""


class Told(NamedTuple):
    """What the host is told of a stretch; arrays are padded like those of its plan."""

    rewards: Array
    """(steps, copies)."""
    ended: Array
    """Whose episodes ended, (steps, copies)."""
    found: Array
    """What was not finite, (steps, copies)."""
    metrics: Array
    """(updates, metrics, learners)."""


class DeviceStretch:
    """The compiled program of a scheme on an environment."""

    def __init__(self, scheme: Scheme, spec: EnvSpec, simulation: Simulation) -> None:
        self._scheme, self._spec, self._simulation = scheme, spec, simulation
        self.metric_names: dict[bool, tuple[str, ...]] = {}
        """Names of the metrics, in order, of updates with a policy step and without."""
        self.is_compiled = False
        options = compiler_options(library_for(scheme.algorithm))
        self._compiled: Any = jax.jit(self._run, donate_argnums=0, compiler_options=options)

    def __call__(
        self, moving: Moving, plan: Plan, keys: Keys, copies: np.ndarray
    ) -> tuple[Moving, Told]:
        """Play a stretch, without waiting for it; copies: which of the population's these are."""
        begun = self._compiled(moving, plan, keys, copies)
        self.is_compiled = True
        return begun

    @property
    def num_compiled(self) -> int:
        """How many programs were compiled."""
        return self._compiled._cache_size()

    def _run(self, moving: Moving, plan: Plan, keys: Keys, copies: Array) -> tuple[Moving, Told]:
        steps, count = plan.drawn.shape[:2]
        learn = self._learning(moving, plan, keys)
        told = Told(
            jnp.zeros((steps, count)),
            jnp.zeros((steps, count), bool),
            jnp.zeros((steps, count), jnp.int8),
            learn.no_metrics,
        )

        def body(step: Array, carry: tuple[Moving, Told]) -> tuple[Moving, Told]:
            (state, now, rows), told = carry
            now, transition, ended, found = self._step(state, now, plan, step, keys, copies)
            rows = _stored(rows, pack_on_device(self._spec, transition), plan.place + step * count)
            passes = plan.due[step] // len(learn.unit), plan.due[step + 1] // len(learn.unit)
            carry = state, told.metrics
            state, metrics = jax.lax.fori_loop(*passes, partial(learn.unit_of_updates, rows), carry)
            state = self._end_episodes(state, ended)
            told = Told(
                told.rewards.at[step].set(transition.reward),
                told.ended.at[step].set(ended),
                told.found.at[step].set(found),
                metrics,
            )
            return Moving(state, now, rows), told

        return jax.lax.fori_loop(0, plan.num_steps, body, (moving, told))

    def _step(
        self, state: Any, now: Copies, plan: Plan, step: Array, keys: Keys, copies: Array
    ) -> Any:
        """Act, and step the copies."""
        scheme, number = self._scheme, plan.first_step + step
        acted = scheme.act(scheme.acting(state), now.observation, keys.act, number)
        at_random = number <= scheme.num_random_steps
        actions = jnp.where(at_random, plan.drawn[step].astype(acted.dtype), acted)
        now, transition, ended = self._simulation.stepped(keys.episode, copies, now, actions)
        parts = actions, transition.next_observation, transition.reward
        found = jnp.full(len(copies), SOUND, jnp.int8)
        for code in (BAD_REWARD, BAD_OBSERVATION, BAD_ACTION):  # the first one is said
            bad = ~_finite(parts[code - BAD_ACTION])
            found = jnp.where(bad, jnp.int8(code), found)
        return now, transition, ended, found

    def _end_episodes(self, state: Any, ended: Array) -> Any:
        if not self._scheme.follows_episodes:
            return state
        end = self._scheme.end_episodes
        return jax.lax.cond(ended.any(), lambda: end(state, ended), lambda: state)

    def _learning(self, moving: Moving, plan: Plan, keys: Keys) -> Learning:
        made = Learning(self._scheme, self._spec, moving, plan, keys)
        self.metric_names = made.metric_names
        return made


class Learning:
    """The updates of a stretch, as its program traces them."""

    def __init__(
        self, scheme: Scheme, spec: EnvSpec, moving: Moving, plan: Plan, keys: Keys
    ) -> None:
        self._plan, self._kinds = plan, kinds_of_updates(scheme)
        self.unit = unit_of_updates(scheme)

        def learn(with_policy: bool, state: Any, rows: Array, update: Array) -> Any:
            batches = unpack_transitions(spec, rows)
            return scheme.learn(state, batches, jax.random.fold_in(keys.learn, update), with_policy)

        # Compiled functions are traced once, however often they are called in a program.
        self._learn = {kind: jax.jit(partial(learn, kind), inline=True) for kind in self._kinds}
        inputs = moving.state, moving.rows[plan.places[0]], plan.first_update
        metrics = {kind: jax.eval_shape(self._learn[kind], *inputs)[1] for kind in self._kinds}
        self.metric_names = {kind: tuple(found) for kind, found in metrics.items()}
        most = max(map(len, metrics.values()))
        num_learners = next(iter(metrics[self._kinds[0]].values())).shape[0]
        self.no_metrics = jnp.zeros((len(plan.with_policy), most, num_learners))

    def unit_of_updates(self, rows: Array, index: Array, carry: Any) -> tuple[Any, Array]:
        """The updates of one pass of the loop."""
        for place, kind in enumerate(self.unit):
            carry = self._update(rows, index * len(self.unit) + place, kind, *carry)
        return carry

    def _update(
        self, rows: Array, index: Array, kind: bool | None, state: Any, metrics: Array
    ) -> tuple[Any, Array]:
        """One update of every learner, and its metrics in their place.

        kind: whether it includes a policy step; None if the plan says.
        """
        batches = rows[self._plan.places[index]]
        number = self._plan.first_update + index

        def learn(kind: bool) -> tuple[Any, Array]:
            after, found = self._learn[kind](state, batches, number)
            return after, _stacked(found, metrics.shape[1])

        if kind is None:
            branches = partial(learn, True), partial(learn, False)
            state, values = jax.lax.cond(self._plan.with_policy[index], *branches)
        else:
            state, values = learn(kind)
        return state, metrics.at[index].set(values)


def kinds_of_updates(scheme: Scheme) -> tuple[bool, ...]:
    """Whether there are updates without a policy step, and with one."""
    return tuple(sorted(set(_first_updates(scheme))))


def unit_of_updates(scheme: Scheme) -> tuple[bool | None, ...]:
    """Whether updates include a policy step, as every time step repeats it; else one unknown."""
    rhythm, first = scheme.rhythm(), _first_updates(scheme)
    assert isinstance(rhythm, EveryStep)
    for length in range(1, LONGEST_UNIT + 1):
        unit = first[:length]
        repeats = all(kind == unit[place % length] for place, kind in enumerate(first))
        if repeats and (length == 1 or rhythm.updates % length == 0):
            return unit
    return (None,)


def _first_updates(scheme: Scheme) -> tuple[bool, ...]:
    return tuple(scheme.with_policy(update, 0, 0) for update in range(1, FAR + 1))


def _stacked(metrics: Recorded, count: int) -> Array:
    """Metrics as (count, learners); rows of zeros follow those that there are."""
    values = jnp.stack([jnp.asarray(value, jnp.float32) for value in metrics.values()])
    return jnp.pad(values, ((0, count - len(values)), (0, 0)))


def _stored(ring: Array, rows: Array, place: Array) -> Array:
    """The ring with rows in the places from here on, around its end."""
    if len(ring) % len(rows) == 0:  # then they never lie on both sides of its end
        return jax.lax.dynamic_update_slice_in_dim(ring, rows, place % len(ring), 0)
    places = (place + jnp.arange(len(rows))) % len(ring)
    return ring.at[places].set(rows, unique_indices=True)


def _finite(values: Array) -> Array:
    """For each copy whether its values are finite, (copies,)."""
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return jnp.ones(len(values), bool)
    return (jnp.abs(values) <= LARGEST).reshape(len(values), -1).all(axis=1)


stretch_of = lru_cache(maxsize=4)(DeviceStretch)
