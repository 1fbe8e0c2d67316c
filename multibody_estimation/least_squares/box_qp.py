# SPDX-License-Identifier: Apache-2.0
"""A small strictly convex quadratic program with bounds, by an active-set method."""

import numpy as np

__all__ = ['box_qp']


def box_qp(S: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimise d'Sd/2 + g'd for lower <= d <= upper.

    S (p, p) symmetric positive definite. Returns the minimiser (p,) and which side holds each entry: -1, 0 or 1 (p,).
    One constraint is added or released at a time from a feasible point, so the objective falls at every pass and the method ends
    after finitely many; p is the number of parameters, a few dozen.
    """
    p = g.size
    if not p:
        return np.zeros(0), np.zeros(0, dtype=int)
    d = np.clip(np.zeros(p), lower, upper)
    held = np.zeros(p, dtype=int)
    held[(d >= upper) & (g < 0)] = 1
    held[(d <= lower) & (g > 0)] = -1
    for _ in range(20 * p + 20):
        free = held == 0
        target = d.copy()
        if free.any():
            try:
                target[free] = np.linalg.solve(S[np.ix_(free, free)], -(g[free] + S[np.ix_(free, ~free)] @ d[~free]))
            except np.linalg.LinAlgError:
                target[free] = d[free] - np.linalg.lstsq(S[np.ix_(free, free)], (S @ d + g)[free], rcond=None)[0]
        move = target - d
        with np.errstate(divide='ignore', invalid='ignore'):
            room = np.where(move > 0, (upper - d) / move, np.where(move < 0, (lower - d) / move, np.inf))
        first = int(np.argmin(room))
        if room[first] < 1.0:
            d = d + max(room[first], 0.0) * move
            held[first] = 1 if move[first] > 0 else -1
            d[first] = upper[first] if move[first] > 0 else lower[first]
            continue
        d = target
        slope = S @ d + g
        push = np.where(held > 0, slope, np.where(held < 0, -slope, 0.0))
        worst = int(np.argmax(push))
        if push[worst] <= 1e-12 * (1 + np.abs(g).max()):
            break
        held[worst] = 0
    return np.clip(d, lower, upper), held
