# SPDX-License-Identifier: Apache-2.0
"""Plan of a straight walk: where the soles are, which of them bears how much, and how the center of mass goes with it."""

import numpy as np
from scipy.linalg import solve_banded

__all__ = ['pendulum', 'plan', 'smooth']


def smooth(s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rise from 0 to 1 over s = 0 .. 1 with three vanishing derivatives at both ends; value, slope, second derivative."""
    s = np.clip(s, 0, 1)
    return s**4 * (35 - 84 * s + 70 * s**2 - 20 * s**3), 140 * (s * (1 - s)) ** 3, 420 * (s * (1 - s)) ** 2 * (1 - 2 * s)


def plan(
    time: np.ndarray, steps: int, step_time: float, double_support: float, length: float, height: float, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return sole paths with two derivatives (3, n, 2, 3) and load of each foot (n, 2): right foot first, last step closes up."""
    soles = np.zeros((3, len(time), 2, 3))
    soles[0, :, 0, 1], soles[0, :, 1, 1] = width / 2, -width / 2
    load = np.full((len(time), 2), 0.5)
    begin = 0.6
    for k in range(steps):
        foot = (k + 1) % 2
        start = begin + k * step_time
        # The load leaves the foot during double support, the foot swings, and the load is shared again after the last step.
        shift, *_ = smooth((time - start) / double_support)
        target = float(foot == 0)
        before = 0.5 if k == 0 else target
        after = time >= start
        left = before + ((1.0 - target) - before) * shift
        load[after, 0], load[after, 1] = left[after], 1 - left[after]
        swing = step_time - double_support
        s = (time - start - double_support) / swing
        far = length * (1 if k in (0, steps - 1) else 2)
        for order, part in enumerate(smooth(s)):
            soles[order, :, foot, 0] += far * part / swing**order
        inside = np.clip(s, 0, 1)
        lift = 256 * height * np.stack([
            (inside * (1 - inside)) ** 4,
            4 * (inside * (1 - inside)) ** 3 * (1 - 2 * inside) / swing,
            (12 * (inside * (1 - inside)) ** 2 * (1 - 2 * inside) ** 2 - 8 * (inside * (1 - inside)) ** 3) / swing**2,
        ])  # fmt: skip
        soles[:, :, foot, 2] += lift
    end = begin + steps * step_time
    last, *_ = smooth((time - end) / double_support)
    after = time >= end
    load[after] = load[after] + (0.5 - load[after]) * last[after, None]
    return soles, load


def pendulum(time: np.ndarray, zero_moment_point: np.ndarray, height: float) -> np.ndarray:
    """Center of mass over the time line with c - h/g cddot = z, at rest at both ends: one tridiagonal system."""
    k = height / 9.81 / (time[1] - time[0]) ** 2
    n = len(time)
    bands = np.zeros((3, n))
    bands[1, 1:-1], bands[1, [0, -1]] = 1 + 2 * k, 1  # the ends are given
    bands[0, 2:], bands[2, :-2] = -k, -k
    return solve_banded((1, 1), bands, zero_moment_point)
