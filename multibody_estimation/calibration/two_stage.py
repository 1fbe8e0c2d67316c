# SPDX-License-Identifier: Apache-2.0
"""The two-stage estimate: regress the counts of each dataset on gravity, then fit matrix and body to the regressed maps.

Stage one makes the noisy counts the response instead of the regressor (``r = R_k a + o_k`` per dataset), so their noise averages
out; stage two solves ``C R_k - M_u = M_k``, 18 equations per dataset weighted by ``sqrt(n_k)``, whose regressor has errors that
shrink with n. The estimate is consistent in n, unlike `one_stage`.
"""

from collections.abc import Sequence

import numpy as np

from multibody_estimation.calibration.model import SELECTION, Dataset, Moments, gravity_map
from multibody_estimation.calibration.scaling import Scaling


def stage_two(
    maps: Sequence[np.ndarray], datasets: Sequence[Dataset], scaling: Scaling, weights: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Regressor (18 k, 40) and right side (18 k,) of ``C R_k - M_u = M_k`` in scaled units."""
    D = np.tile(1 / scaling.wrench, 3)
    A, b = [], []
    for R, d, w in zip(maps, datasets, weights):
        left = np.kron((R / scaling.strain[:, None]).T, np.eye(6))
        A.append(w * np.concatenate([left, -D[:, None] * SELECTION], axis=1))
        b.append(w * D * gravity_map(d.load.inertia).T.ravel())
    return np.concatenate(A), np.concatenate(b)


def regress(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Stage one: map R (6, 3) in counts per m/s^2 and offset (6,) in counts."""
    m = Moments.of(dataset)
    R = np.linalg.solve(m.aa, m.ra.T).T
    return R, m.strain - R @ m.acceleration


def two_stage(datasets: Sequence[Dataset]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix (6, 6) in N and N m per count, the body's ``[m, m c]`` (4,) and the offsets (k, 6) in counts."""
    scaling = Scaling.of(datasets)
    maps, offsets = zip(*(regress(d) for d in datasets))
    A, b = stage_two(maps, datasets, scaling, [np.sqrt(len(d)) for d in datasets])
    x, *_ = np.linalg.lstsq(A, b, rcond=None)
    return scaling.matrix(x[:36]), x[36:], np.array(offsets)
