# SPDX-License-Identifier: Apache-2.0
"""Which orientation and which mass next? The sample that raises the determinant of the information most (D-optimal)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multibody_estimation.calibration.enough import relative_accuracy
from multibody_estimation.calibration.likelihood import map_jacobian, total_variance
from multibody_estimation.calibration.model import GRAVITY, Load, Noise, gravity_map
from multibody_estimation.calibration.scaling import Scaling
from multibody_estimation.errors import EstimationError


@dataclass(frozen=True, eq=False)
class Proposal:
    """One sample to take."""

    load: Load
    direction: np.ndarray
    """Where up should point in the sensor's axes, unit vector; shape (3,)."""
    accuracy: float
    """Relative standard deviation of the worst row of the matrix after this sample; see `relative_accuracy`."""

    def __str__(self) -> str:
        x, y, z = self.direction
        return (
            f'With {self.load}: hold the sensor so that up points along ({x:.2f}, {y:.2f}, {z:.2f}) of its axes '
            f'(worst row then known to {100 * self.accuracy:.2g} %).'
        )


def sphere_points(count: int = 60) -> np.ndarray:
    """Directions spread evenly over the sphere (Fibonacci spiral); shape (count, 3)."""
    i = np.arange(count) + 0.5
    z, angle = 1 - 2 * i / count, np.pi * (1 + 5**0.5) * i
    return np.column_stack([np.sqrt(1 - z**2) * np.cos(angle), np.sqrt(1 - z**2) * np.sin(angle), z])


def plan(
    matrix: np.ndarray,
    body: np.ndarray,
    loads: Sequence[Load],
    *,
    taken: Sequence[tuple[Load, np.ndarray]] = (),
    wanted: float = 0.05,
    noise: Noise | None = None,
    candidates: int = 60,
    max_samples: int = 200,
) -> list[Proposal]:
    """Propose samples, best first, until every row of the matrix is known to ``wanted`` (relative) or ``max_samples`` are planned.

    ``matrix`` and ``body`` are guesses (the factory matrix, a first calibration); ``taken`` holds the loads and directions (n, 3)
    of the samples there are. Each load has its own offset, which costs information like any unknown.
    """
    if not loads:
        raise EstimationError('The planner needs at least one load to choose from.')
    noise = noise or Noise()
    directions = sphere_points(candidates)
    every = list(dict.fromkeys([*loads, *(load for load, _ in taken)]))
    # Spread of the counts that the loads produce, as the data would show it.
    maps = [np.linalg.solve(matrix, gravity_map(body + load.inertia)) for load in every]
    strain = np.sqrt(np.mean([np.sum(np.square(GRAVITY * R), axis=1) / 3 for R in maps], axis=0))
    mass, lever = max(x.mass for x in every) or 1.0, max(np.linalg.norm(x.inertia[1:]) for x in every) or 0.1
    scaling = Scaling(strain, np.repeat([GRAVITY * mass, GRAVITY * lever], 3))

    size = 40 + 6 * len(every)
    # A loose prior (each unknown known to its own scale, offsets to the spread of the counts) makes the first steps well posed.
    F = np.diag(np.concatenate([np.full(40, 1e-2), np.full(6 * len(every), 1.0)]))

    def rows(k: int, u: np.ndarray) -> np.ndarray:
        """Whitened rows of a sample with load k and direction u; shape (6, size)."""
        R = maps[k]
        J = np.zeros((6, size))
        J[:, :40] = np.kron(GRAVITY * u[None], np.eye(6)) @ map_jacobian(matrix, R, scaling)
        J[:, 40 + 6 * k : 46 + 6 * k] = np.diag(strain)
        return np.linalg.solve(np.linalg.cholesky(total_variance(R, noise)), J)

    def accuracy(inverse: np.ndarray) -> float:
        deviation = (np.sqrt(np.diag(inverse)[:40]) * scaling.parameters)[:36].reshape(6, 6).T
        return relative_accuracy(matrix, deviation, scaling)

    for load, ups in taken:
        for u in np.atleast_2d(ups):
            J = rows(every.index(load), u / np.linalg.norm(u))
            F += J.T @ J
    options = [(every.index(load), u) for load in loads for u in directions]
    stack = np.stack([rows(k, u) for k, u in options])
    proposals: list[Proposal] = []
    inverse = np.linalg.inv(F)
    while accuracy(inverse) > wanted and len(proposals) < max_samples:
        gain = np.linalg.slogdet(np.eye(6) + stack @ inverse @ stack.transpose(0, 2, 1))[1]
        best = int(np.argmax(gain))
        k, u = options[best]
        F += stack[best].T @ stack[best]
        inverse = np.linalg.inv(F)
        proposals.append(Proposal(every[k], u, accuracy(inverse)))
    return proposals
