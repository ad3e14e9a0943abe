"""Learners of other libraries that keep environment, replay and learning on a device.

    rejax     its TD3 on gymnax's Pendulum-v1
    brax      its SAC on Gymnasium's functional Pendulum with Brax's interface

Each trains one learner: one environment step, one update. It goes on in turns and tells its
environment steps per second; what it does between turns is not counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from p3s.envs.functional_gymnasium import make_functional

EPISODE, STEPS_AT_ONCE = 200, 512


class Sizes(NamedTuple):
    """What both sides have alike."""

    hidden: Sequence[int]
    batch: int
    learning_rate: float
    buffer: int
    initial: int


class Peer(Protocol):
    """A training that is continued in its turns."""

    def turn(self, seconds: float) -> float:
        """Train for about this long; environment steps per second."""
        ...


def missing(*modules: str) -> str | None:
    """What to say if one of these is not installed or cannot be imported."""
    for module in modules:
        if find_spec(module.partition(".")[0]) is None:
            return f"{module} is not installed"
        try:
            with without_notices():
                __import__(module)
        except Exception as error:
            return f"{module} cannot be imported: {type(error).__name__}: {error}"
    return None


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Leave out what packages print when they are imported."""
    import io
    import warnings

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class Rejax:
    """rejax's TD3; count: learners under one vmap, its way to train several."""

    def __init__(self, sizes: Sizes, count: int = 1) -> None:
        from rejax import TD3

        relu = {"activation": "relu"}
        made: Any = TD3.create(
            env="Pendulum-v1", total_timesteps=STEPS_AT_ONCE, eval_freq=STEPS_AT_ONCE,
            skip_initial_evaluation=True, fill_buffer=sizes.initial, buffer_size=sizes.buffer,
            batch_size=sizes.batch, learning_rate=sizes.learning_rate, polyak=0.995,
            exploration_noise=0.1, actor_kwargs=dict(relu), critic_kwargs=dict(relu),
        )  # fmt: skip
        hidden = tuple(sizes.hidden)
        algorithm = made.replace(
            eval_callback=lambda *about: (),
            actor=made.actor.clone(hidden_layer_sizes=hidden),
            critic=made.critic.clone(hidden_layer_sizes=hidden),
        )
        keys = jax.random.split(jax.random.PRNGKey(0), count)
        state = jax.vmap(algorithm.init_state)(keys)
        # Some of its leaves are one array, which cannot be given away twice.
        self._state = jax.tree.map(jnp.array, state)
        self._train = jax.jit(
            jax.vmap(lambda state: algorithm.train(train_state=state)[0]), donate_argnums=0
        )
        self._count = count
        self.turn(0.0)
        self.turn(0.0)  # past its random steps

    def turn(self, seconds: float) -> float:
        started, steps = time.perf_counter(), 0
        while steps == 0 or time.perf_counter() - started < seconds:
            self._state = jax.block_until_ready(self._train(self._state))
            steps += STEPS_AT_ONCE * self._count
        return steps / (time.perf_counter() - started)


class BraxSAC:
    """Brax's SAC, whose `train` is a loop of its own: it waits between its epochs."""

    def __init__(self, sizes: Sizes) -> None:
        from brax.training.agents.sac import networks, train

        self._go: SimpleQueue[bool] = SimpleQueue()
        self._told: SimpleQueue[dict[str, Any] | Exception] = SimpleQueue()
        epochs = 1_000_000
        run = partial(
            train.train, make_brax_pendulum(), epochs * STEPS_AT_ONCE + sizes.initial, EPISODE,
            num_evals=epochs + 1, num_eval_envs=1, learning_rate=sizes.learning_rate,
            discounting=0.99, batch_size=sizes.batch, tau=0.005, min_replay_size=sizes.initial,
            max_replay_size=sizes.buffer, max_devices_per_host=1,
            network_factory=partial(
                networks.make_sac_networks, hidden_layer_sizes=tuple(sizes.hidden)
            ),
            progress_fn=lambda step, metrics: self._wait(metrics),
        )  # fmt: skip
        # jax 0.10 has no such function any more, and brax 0.14.2 calls it once.
        jax.device_put_replicated = lambda tree, devices: jax.tree.map(  # type: ignore[reportAttributeAccessIssue]
            lambda leaf: jnp.stack([jnp.asarray(leaf)] * len(devices)), tree
        )
        threading.Thread(target=self._run, args=(run,), daemon=True).start()
        self._hear()  # its first evaluation
        self.turn(0.0)  # compiles

    def _run(self, train: Callable[[], Any]) -> None:
        try:
            train()
        except Exception as error:
            self._told.put(error)

    def _wait(self, metrics: dict[str, Any]) -> None:
        self._told.put(metrics)
        self._go.get()

    def _hear(self) -> dict[str, Any]:
        told = self._told.get()
        if isinstance(told, Exception):
            raise told
        return told

    def turn(self, seconds: float) -> float:
        spent, steps = 0.0, 0
        while steps == 0 or spent < seconds:
            self._go.put(True)
            steps += STEPS_AT_ONCE
            # It evaluates after every epoch, which its own clock leaves out.
            spent += STEPS_AT_ONCE / float(self._hear()["training/sps"])
        return steps / spent


def make_brax_pendulum() -> Any:
    """Gymnasium's functional Pendulum with Brax's interface, for both sides."""
    from brax.envs.base import Env, State

    inner = make_functional("phys2d/Pendulum-v0")

    class Pendulum(Env):
        """Randomness is in the state; actions are in [-1, 1]."""

        observation_size, action_size, backend = 3, 1, "none"
        episode_length = EPISODE

        def reset(self, rng: jax.Array) -> Any:
            first, later = jax.random.split(jax.random.wrap_key_data(rng))
            state, seen = inner.reset(first)
            kept = state, jax.random.key_data(later)
            return State(kept, seen, jnp.zeros(()), jnp.zeros(()))

        def step(self, state: Any, action: jax.Array) -> Any:
            own, data = state.pipeline_state
            now, later = jax.random.split(jax.random.wrap_key_data(data))
            outcome = inner.step(own, 2.0 * action, now)
            kept = outcome.state, jax.random.key_data(later)
            return state.replace(
                pipeline_state=kept, obs=outcome.observation,
                reward=jnp.asarray(outcome.reward, jnp.float32).reshape(()),
            )  # fmt: skip

    return Pendulum()
