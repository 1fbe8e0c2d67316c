# SPDX-License-Identifier: Apache-2.0
"""The same posterior with dense matrices, by QR of the whitened system: slow and plain, to check the sweep and to draw samples."""

from typing import Any

import numpy as np

from multibody_estimation.wrench.equations import matrices, shape
from multibody_estimation.wrench.program import Program

__all__ = ['covariances', 'dense_posterior', 'draw_samples', 'prior_rows']


def _root(C: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(C)


def _block(parts: list[np.ndarray]) -> np.ndarray:
    size = sum(len(p) for p in parts)
    out, at = np.zeros((size, size)), 0
    for p in parts:
        out[at : at + len(p), at : at + len(p)] = p
        at += len(p)
    return out


def covariances(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of the equations (Newton-Euler by link, then motions without the base's) and of the measurements."""
    a, n = program.arrays, program.nodes
    base = shape(program).base
    equations = [a['Sne'][i] for i in n.of_link] + [a['Sa'][i] for k, i in enumerate(n.joint_of_link) if k != base]
    return _block(equations), _block([x.sensor.covariance() for x in program.terms]) if program.terms else np.zeros((0, 0))


def prior_rows(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Priors on d as whitened rows: U d ~ N(u, 1)."""
    a, n = program.arrays, program.nodes
    nl, base = len(program.link_names), shape(program).base
    size = 18 * nl - 6 + len(program.joint_names)
    rows, data = [], []

    def add(at: int, W: np.ndarray, mean: np.ndarray) -> None:
        row = np.zeros((len(W), size))
        row[:, at : at + W.shape[1]] = W
        rows.append(row)
        data.append(W @ mean)

    for k in range(nl):
        i = n.of_link[k]
        if a['Jp'][i].any():
            add(6 * k, np.linalg.cholesky(a['Jp'][i]).T, np.linalg.solve(a['Jp'][i], a['jp'][i]))
        C = a['Cx'][i] @ a['Cx'][i].T
        add(6 * nl + 6 * k, np.linalg.inv(_root(C)), a['mxp'][i])
        if k != base:
            i = n.joint_of_link[k]
            if a['Lp'][i].any():
                at = 12 * nl + 6 * (k - (k > base))
                add(at, np.linalg.cholesky(a['Lp'][i]).T, np.linalg.solve(a['Lp'][i], a['lp'][i]))
    for j, i in enumerate(n.of_joint):
        add(18 * nl - 6 + j, np.array([[1 / np.sqrt(a['pqp'][i])]]), a['mqp'][i : i + 1])
    return np.vstack(rows), np.concatenate(data)


def dense_posterior(
    program: Program, position: Any, velocity: Any, base_velocity: Any, measurements: Any, weights: Any = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of d (the vector of `equations.flatten`) and log p(y) of one sample. All covariances must be positive."""
    D, bD, Y, bY = matrices(program, position, velocity, base_velocity)
    SD, Sy = covariances(program)
    U, u = prior_rows(program)
    WD = np.linalg.inv(_root(SD))
    keep = (
        np.ones(len(bY), bool) if weights is None else np.repeat(np.asarray(weights) > 0, [x.sensor.size for x in program.terms])
    )
    Sy, Y, r = Sy[np.ix_(keep, keep)], Y[keep], (np.asarray(measurements, dtype=float) - bY)[keep]
    Wy = np.linalg.inv(_root(Sy)) if keep.any() else np.zeros((0, 0))
    A = np.vstack([WD @ D, U, Wy @ Y])
    b = np.concatenate([-WD @ bD, u, Wy @ r])
    free = np.ones(A.shape[1], bool)
    if not program.floating:  # the base's acceleration is known: its columns go to the right
        free[6 * shape(program).base : 6 * shape(program).base + 6] = False
        b = b - A[:, ~free] @ program.base_acceleration
        r = r - Y[:, ~free] @ program.base_acceleration
        A, Y = A[:, free], Y[:, free]
    Q, R = np.linalg.qr(A)
    Ri = np.linalg.inv(R)
    mean, C = np.zeros(len(free)), np.zeros((len(free), len(free)))
    mean[free], C[np.ix_(free, free)] = np.linalg.solve(R, Q.T @ b), Ri @ Ri.T
    mean[~free] = program.base_acceleration[: (~free).sum()]
    # Evidence: y is Gaussian with the prior's mean and covariance carried through Y.
    Q0, R0 = np.linalg.qr(A[: len(WD) + len(U)])
    prior = np.linalg.solve(R0, Q0.T @ b[: len(WD) + len(U)])
    YR = Y @ np.linalg.inv(R0)
    S, e = YR @ YR.T + Sy, r - Y @ prior
    evidence = -0.5 * (len(e) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + e @ np.linalg.solve(S, e))
    return mean, C, float(evidence)


def draw_samples(
    program: Program, position: Any, velocity: Any, base_velocity: Any, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw d and measurements from the model itself: external wrenches, joint accelerations and equation errors from their priors.

    ``position`` (N, n) and so on; returns d (N, size) in the order of `equations.flatten`, and measurements (N, ny).
    """
    rng = np.random.default_rng(seed)
    a, n = program.arrays, program.nodes
    nl, base, nj = len(program.link_names), shape(program).base, len(program.joint_names)
    size = 18 * nl - 6 + nj
    SD, Sy = covariances(program)
    values, vectors = np.linalg.eigh(SD)
    root_D, root_y = vectors * np.sqrt(np.maximum(values, 0)), _root(Sy)
    wrench, joint = 6 * nl, 18 * nl - 6
    known = np.r_[wrench : wrench + 6 * nl, joint:size]
    if not program.floating:  # the base's acceleration is known, and the wrench that holds it follows
        held = np.r_[wrench + 6 * base : wrench + 6 * base + 6]
        known = np.r_[np.setdiff1d(known, held), 6 * base : 6 * base + 6]
    follow = np.setdiff1d(np.arange(size), known)
    ds, ys = np.zeros((len(position), size)), np.zeros((len(position), program.setup.size))
    for t in range(len(position)):
        D, bD, Y, bY = matrices(program, position[t], velocity[t], base_velocity[t])
        d = np.zeros(size)
        for k, i in enumerate(n.of_link):
            d[wrench + 6 * k : wrench + 6 * k + 6] = a['mxp'][i] + a['Cx'][i] @ rng.normal(size=6)
        for j, i in enumerate(n.of_joint):
            d[joint + j] = a['mqp'][i] + np.sqrt(a['pqp'][i]) * rng.normal()
        if not program.floating:
            d[held], d[6 * base : 6 * base + 6] = 0.0, program.base_acceleration
        e = root_D @ rng.normal(size=len(SD))
        d[follow] = 0.0
        d[follow] = np.linalg.solve(D[:, follow], e - bD - D @ d)
        ds[t], ys[t] = d, Y @ d + bY + root_y @ rng.normal(size=len(Sy))
    return ds, ys
