"""A worker that plays units of evaluations: `python -m p3s.evaluation.worker`."""

from __future__ import annotations

from collections.abc import Callable

import jax

from p3s.algorithms import Algorithm
from p3s.envs import Adapter
from p3s.evaluation.playing import Player
from p3s.learning import devices
from p3s.workers.process import Handler, serve


def begin(
    make: Callable[[], Adapter], algorithm: Algorithm, seed: int, num_devices: int
) -> Handler:
    """Get ready to play; makes an environment at once, to fail early if it cannot."""
    # As many devices as the run has, since they decide how products are shared out.
    devices.prepare(num_devices)
    # Every action is waited for: a hand-over to another thread would double its time.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    player = Player(make, algorithm, seed)
    player.envs.append(make())
    return player.play, player.close


if __name__ == "__main__":
    serve(begin)
