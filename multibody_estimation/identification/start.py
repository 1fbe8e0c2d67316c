# SPDX-License-Identifier: Apache-2.0
"""The first guess of the motion: smoothed encoder readings, nothing else."""

from collections.abc import Sequence

import numpy as np
from scipy.signal import savgol_filter

from multibody_estimation.identification.grid import Grid
from multibody_estimation.identification.observations import Encoder

__all__ = ['first_positions']


def first_positions(grid: Grid, nq: int, offsets: Sequence[Sequence[float]]) -> np.ndarray:
    """Smoothed encoder readings at every stage, (nq, n); zero for joints that no encoder reads. offsets: of each sensor."""
    q = np.zeros((nq, len(grid)))
    # Where several encoders read one joint, the one with most samples has the last word.
    for samples, offset in sorted(zip(grid.samples, offsets), key=lambda pair: int((pair[0].weight > 0).sum())):
        if not isinstance(samples.sensor, Encoder):
            continue
        for row, joint in enumerate(samples.index):
            for a, b in zip(grid.starts[:-1], grid.starts[1:]):
                seen = samples.weight[row, a:b] > 0
                y = samples.values[row, a:b][seen] - offset[row]
                if not y.size:
                    continue
                y = np.unwrap(y) if samples.turns[row] else y
                width = min(21, len(y) - 1 + len(y) % 2)
                if width >= 5:
                    y = savgol_filter(y, width, 3)
                moments = np.arange(b - a)[seen] + samples.lag[a:b][seen] / grid.step
                q[joint, a:b] = np.interp(np.arange(b - a), moments, y)
            q[joint, grid.count :] = q[joint, grid.count - 1]
    return q
