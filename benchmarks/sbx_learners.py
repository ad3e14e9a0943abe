"""SBX's algorithms with the settings of ours, to be put beside them."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = {"td3": "TD3", "sac": "SAC", "tqc": "TQC", "crossq": "CrossQ"}
POLICY_DELAY = {"td3": 2, "sac": 1, "tqc": 1, "crossq": 3}
"""Updates to a policy step, which SBX's TD3 does not let one choose."""


def make_sbx(
    env: str, algorithm: str, seed: int, hidden_sizes: tuple[int, ...], batch_size: int,
    learning_rate: float, learning_starts: int, num_dropped: int = 2,
) -> Any:  # fmt: skip
    """SBX's algorithm of this name of ours, one update per step."""
    import gymnasium
    import sbx
    from stable_baselines3.common.noise import NormalActionNoise

    more: dict[str, Any] = {}
    if algorithm == "tqc":
        more["top_quantiles_to_drop_per_net"] = num_dropped
    if algorithm == "td3":
        shape = gymnasium.make(env).action_space.shape
        assert shape is not None
        more["action_noise"] = NormalActionNoise(np.zeros(shape), np.full(shape, 0.1))
    else:
        more["policy_delay"] = POLICY_DELAY[algorithm]
    return getattr(sbx, NAMES[algorithm])(
        "MlpPolicy", env, seed=seed, batch_size=batch_size, gamma=0.99,
        policy_kwargs={"net_arch": list(hidden_sizes)}, learning_rate=learning_rate,
        qf_learning_rate=learning_rate, learning_starts=learning_starts, **more,
    )  # fmt: skip
