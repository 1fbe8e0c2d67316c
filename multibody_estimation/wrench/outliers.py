# SPDX-License-Identifier: Apache-2.0
"""Outlier gate: each sensor against what all others say of it.

With r = y - Y d - bY and P the posterior covariance, r'(Sig - Y P Y')^-1 r is the squared innovation of a sensor predicted by all the
others, in units of its own standard deviation: chi-squared with as many degrees as the sensor has directions the others tell of.
"""

from typing import Any

import numpy as np
from scipy.stats import chi2

from multibody_estimation.kernels.wrench_sweep import KINDS
from multibody_estimation.wrench.posterior import Posterior, solve
from multibody_estimation.wrench.program import Program

__all__ = ['normalised', 'predicted_covariance', 'sensor_blocks', 'solve_gated']

TELLS = {
    'acceleration': 'acceleration',
    'transmitted': 'joint_wrench',
    'external': 'external_wrench',
    'joint': 'joint_acceleration',
}


def sensor_blocks(program: Program, sensors: list[int]) -> tuple[tuple[int, int], ...]:
    """Pairs (node, kind) of the quantities that the sensors measure, each once."""
    found: dict[tuple[int, int], None] = {}
    for s in sensors:
        x = program.terms[s]
        if x.target != 'velocity':
            found[x.node, KINDS[TELLS[x.target]]] = None
    return tuple(found)


def predicted_covariance(program: Program, s: int, pairs: tuple[tuple[int, int], ...], covariances: np.ndarray) -> np.ndarray:
    """Y P Y' of a sensor; (N, k, k). ``covariances`` (N, len(pairs), 6, 6) are those of `sensor_blocks`."""
    x = program.terms[s]
    if x.target == 'velocity':
        return np.zeros((len(covariances), x.sensor.size, x.sensor.size))
    P = covariances[:, pairs.index((x.node, KINDS[TELLS[x.target]]))]
    P = P[:, :1, :1] if x.target == 'joint' else P
    return x.Y @ P @ x.Y.T


def normalised(
    found: Posterior, sensors: list[int], pairs: tuple[tuple[int, int], ...], covariances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Squared normalised residual and its degrees of freedom of each sensor; (N, len(sensors)) each; 0 and 0 where missing."""
    program, r = found.program, found.residuals
    square, degrees = np.zeros((len(r), len(sensors))), np.zeros((len(r), len(sensors)), int)
    for c, s in enumerate(sensors):
        x = program.terms[s]
        rs = r[:, x.row : x.row + x.sensor.size]
        there = np.isfinite(rs).all(1)
        W = np.linalg.inv(np.linalg.cholesky(x.sensor.covariance()))
        left = np.eye(x.sensor.size) - W @ predicted_covariance(program, s, pairs, covariances) @ W.T
        values, vectors = np.linalg.eigh(0.5 * (left + left.swapaxes(1, 2)))
        z = np.einsum('nij,ni->nj', vectors, np.nan_to_num(rs) @ W.T)
        # A direction that no other sensor tells of leaves no residual: nothing can be said of it.
        testable = values > 1e-3
        square[:, c] = np.where(there, (np.where(testable, z**2 / np.where(testable, values, 1.0), 0.0)).sum(1), 0.0)
        degrees[:, c] = np.where(there, testable.sum(1), 0)
    return square, degrees


def solve_gated(
    program: Program,
    position: Any,
    velocity: Any,
    base_velocity: Any,
    measurements: Any,
    blocks: Any = (),
    rounds: int = 4,
    twin: bool = False,
) -> tuple[Posterior, np.ndarray, np.ndarray, np.ndarray]:
    """Solve; in each sample leave out the worst sensor beyond its gate, and solve again, at most ``rounds`` times.

    Returns the posterior, the square and the degrees of freedom of each gated sensor's normalised residual as they were when it was
    judged (its last sight), and which of them were left out; each (N, number of gated sensors), in the order of the sensors.
    """
    gated = [s for s, x in enumerate(program.terms) if x.sensor.gate is not None]
    if not gated:
        found = solve(program, position, velocity, base_velocity, measurements, blocks=blocks, twin=twin)
        none = np.zeros((len(found), 0))
        return found, none, none.astype(int), none.astype(bool)
    pairs = sensor_blocks(program, gated)
    limits = np.array([program.terms[s].sensor.gate for s in gated])
    weights = np.ones((len(position), len(program.terms)))
    left_out = np.zeros((len(position), len(gated)), bool)
    square, degrees = np.zeros(left_out.shape), np.zeros(left_out.shape, int)
    for _ in range(rounds + 1):
        found = solve(program, position, velocity, base_velocity, measurements, weights, blocks=blocks, more=pairs, twin=twin)
        tail = np.asarray(found.sweep.covariances)[:, len(found.blocks) :]
        now, count = normalised(found, gated, pairs, tail)
        square, degrees = np.where(left_out, square, now), np.where(left_out, degrees, count)
        chance = np.where(count > 0, chi2.sf(now, np.maximum(count, 1)), 1.0)
        worst = np.argmin(chance / limits, axis=1)
        bad = chance[np.arange(len(worst)), worst] < limits[worst]
        if not bad.any():
            break
        rows = np.flatnonzero(bad)
        left_out[rows, worst[rows]] = True
        weights[rows, np.array(gated)[worst[rows]]] = 0.0
    return found, square, degrees, left_out
