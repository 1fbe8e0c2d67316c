# SPDX-License-Identifier: Apache-2.0
"""Units in which the calibration equations are solved: counts by their spread, forces and torques by what the loads produce.

Counts against m/s^2 and N against N m make the columns of the regressor differ by a thousand; in these units its condition
number falls by more than ten.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.model import GRAVITY, Dataset


@dataclass(frozen=True, eq=False)
class Scaling:
    """Scales of rows and columns; ``C = diag(wrench) C_scaled diag(1 / strain)``."""

    strain: np.ndarray
    """Counts; shape (6,)."""
    wrench: np.ndarray
    """N and N m; shape (6,)."""

    @classmethod
    def of(cls, datasets: Sequence[Dataset]) -> 'Scaling':
        """Scales from the spread of the counts and from the known loads."""
        strain = np.sqrt(np.mean([np.var(d.strain, axis=0) for d in datasets], axis=0))
        mass = np.array([d.load.mass for d in datasets])
        lever = np.array([np.linalg.norm(d.load.center_of_mass) for d in datasets])
        force = GRAVITY * (mass.max() or 1.0)
        torque = GRAVITY * ((mass * lever).max() or 0.1 * (mass.max() or 1.0))
        return cls(np.where(strain > 0, strain, 1.0), np.repeat([force, torque], 3))

    def matrix(self, scaled: np.ndarray) -> np.ndarray:
        """Return the (6, 6) matrix in N and N m per count from its scaled entries, columns stacked; shape (36,)."""
        return self.wrench[:, None] * np.reshape(scaled, (6, 6)).T / self.strain

    @property
    def parameters(self) -> np.ndarray:
        """Factor of each of the 40 unknowns: entries of the matrix, columns stacked, then ``[m, m c]``; shape (40,)."""
        body = np.array([self.wrench[0], *self.wrench[3:]]) / GRAVITY
        return np.concatenate([(self.wrench[:, None] / self.strain).T.ravel(), body])
