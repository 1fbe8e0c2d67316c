# SPDX-License-Identifier: Apache-2.0
"""The two least-squares steps of the slides: remove the offset, then solve for matrix, mass and centre of mass together.

Here the noisy counts are the regressor, so the estimate is attenuated and does not improve with more samples (errors in
variables). It is kept as the published reference beside `two_stage` and `likelihood`, which do not have that bias.
"""

from collections.abc import Sequence

import numpy as np

from multibody_estimation.calibration.model import SELECTION, Dataset, gravity_map
from multibody_estimation.calibration.offset import offset_by_regression
from multibody_estimation.calibration.scaling import Scaling


def regressor(strain: np.ndarray, acceleration: np.ndarray, scaling: Scaling) -> np.ndarray:
    """Rows ``[r' kron I6, -(a' kron I6) P]`` of ``C r - M_u a = M_k a`` in scaled units; shape (6 n, 40)."""
    n = len(strain)
    r, D = strain / scaling.strain, 1 / scaling.wrench
    left = np.einsum('nj,ab->najb', r, np.eye(6)).reshape(6 * n, 36)
    right = np.einsum('nj,a,jap->nap', acceleration, D, SELECTION.reshape(3, 6, 4)).reshape(6 * n, 4)
    return np.concatenate([left, -right], axis=1)


def one_stage(datasets: Sequence[Dataset]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrix (6, 6) in N and N m per count, the body's ``[m, m c]`` (4,) and the offsets (k, 6) in counts."""
    scaling = Scaling.of(datasets)
    offsets = np.array([offset_by_regression(d).offset for d in datasets])
    A = np.concatenate([regressor(d.strain - o, d.acceleration, scaling) for d, o in zip(datasets, offsets)])
    b = np.concatenate([(d.acceleration @ gravity_map(d.load.inertia).T / scaling.wrench).ravel() for d in datasets])
    x, *_ = np.linalg.lstsq(A, b, rcond=None)
    return scaling.matrix(x[:36]), x[36:], offsets
