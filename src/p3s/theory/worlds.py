"""Two small worlds in which the nearest reward is a trap.

    chain   a small reward just to the left of the start, a large one far to the right
    grid    a trap close to the start pays a little and ends the episode; the goal is elsewhere

Each is a `FiniteMDP` of one process whose terminal states return to themselves with reward 0.
"""

from __future__ import annotations

import numpy as np

from p3s.errors import UserError
from p3s.theory.mdp import FiniteMDP, from_arrays

LEFT, RIGHT, UP, DOWN = 0, 1, 2, 3
MOVES = {LEFT: (0, -1), RIGHT: (0, 1), UP: (-1, 0), DOWN: (1, 0)}
TRAP_GRID = (
    "S..T.",
    ".###.",
    ".....",
    ".###.",
    "....G",
)
"""S: start, #: wall, T: trap (terminal, pays a little), G: goal (terminal, pays 1)."""


def deceptive_chain(length: int = 12, discount: float = 0.95, bait: float = 0.1) -> FiniteMDP:
    """A chain that starts in its second state; the left end pays `bait`, the right end pays 1."""
    if length < 4:
        raise UserError(f"the length of a deceptive chain must be at least 4, not {length}")
    transition = np.zeros((length, 2, length))
    reward = np.zeros((length, 2))
    transition[[0, -1], :, [0, -1]] = 1.0
    for place in range(1, length - 1):
        transition[place, LEFT, place - 1] = transition[place, RIGHT, place + 1] = 1.0
    reward[1, LEFT], reward[-2, RIGHT] = bait, 1.0
    return from_arrays(transition, reward, discount, np.eye(length)[1])


def trap_grid(
    rows: tuple[str, ...] = TRAP_GRID, discount: float = 0.95, bait: float = 0.1
) -> FiniteMDP:
    """A grid given as text, as a process; a step into a wall or over the edge stays in place."""
    cells = {(y, x): mark for y, row in enumerate(rows) for x, mark in enumerate(row)}
    places = [place for place, mark in cells.items() if mark != "#"]
    index = {place: number for number, place in enumerate(places)}
    num_starts = sum(cells[place] == "S" for place in places)
    if num_starts != 1:
        raise UserError(f"a grid must have exactly one start S, not {num_starts}")
    transition = np.zeros((len(places), len(MOVES), len(places)))
    reward = np.zeros((len(places), len(MOVES)))
    pay = {"T": bait, "G": 1.0}
    for place in places:
        for action, (down, right) in MOVES.items():
            target = (place[0] + down, place[1] + right)
            ended = cells[place] in "TG"
            target = place if ended or target not in index else target
            transition[index[place], action, index[target]] = 1.0
            if target != place:
                reward[index[place], action] = pay.get(cells[target], 0.0)
    start = np.array([cells[place] == "S" for place in places], dtype=np.float64)
    return from_arrays(transition, reward, discount, start)


def terminal_states(mdp: FiniteMDP) -> np.ndarray:
    """States that only return to themselves with reward 0: (batch, state) of bool."""
    stays = np.einsum("bsas->bsa", mdp.transition) == 1.0
    return (stays & (mdp.reward == 0.0)).all(axis=-1)
