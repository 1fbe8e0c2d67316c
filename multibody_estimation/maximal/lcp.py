# SPDX-License-Identifier: Apache-2.0
"""Linear complementarity problem by Lemke's algorithm: ``w = A z + b, 0 <= z _|_ w >= 0``.

Condensed dictionary with fixed shapes, so that it jits and batches; an infinitesimal perturbation of b (a second right-hand side
that only breaks ties in the ratio test) keeps degenerate problems from cycling; a secondary ray is reported, not hidden.
Lemke reaches a solution for P-matrices and for the copositive matrices of frictional contact with non-negative limits.
See Cottle, Pang, Stone, "The Linear Complementarity Problem", sections 4.4 and 4.9.
"""

from typing import NamedTuple

import numpy as np

from multibody_estimation._jax import jax, jnp

__all__ = ['RAY', 'SOLVED', 'UNFINISHED', 'Solution', 'solve_lcp']

Array = jax.Array

SOLVED, RAY, UNFINISHED = 0, 1, 2


class Solution(NamedTuple):
    """Result of `solve_lcp`."""

    z: Array
    """Shape (n, *T)."""
    w: Array
    """A z + b; shape (n, *T)."""
    status: Array
    """SOLVED, RAY (no solution was found along the path; z is not one) or UNFINISHED (out of pivots); shape (*T)."""
    pivots: Array
    """Number of pivots; shape (*T)."""


def _one_hot(index: Array, size: int) -> Array:
    return jnp.arange(size).reshape((size,) + (1,) * index.ndim) == index[None]


def _times(A: Array, z: Array) -> Array:
    return jnp.sum(A * z[None], axis=1)


def _exchange(D: Array, basic: Array, nonbasic: Array, row: Array, col: Array) -> tuple[Array, Array, Array, Array]:
    """Exchange basic ``row`` and non-basic ``col`` (masks) of the dictionary x_B = D [x_N; 1; perturbation]."""
    pivot_row = jnp.sum(jnp.where(row[:, None], D, 0.0), axis=0)
    pivot_col = jnp.sum(jnp.where(col[None], D, 0.0), axis=1)
    inverse = 1 / jnp.sum(jnp.where(col, pivot_row, 0.0), axis=0)
    # x_s = (x_r - rest of the row)/D_rs, put into all other rows.
    new_row = jnp.where(col, inverse, -pivot_row * inverse)
    others = jnp.where(col[None], 0.0, D) + pivot_col[:, None] * new_row[None]
    few = col[: nonbasic.shape[0]]
    out = jnp.sum(jnp.where(row, basic, 0), axis=0)
    enter = jnp.sum(jnp.where(few, nonbasic, 0), axis=0)
    return jnp.where(row[:, None], new_row[None], others), jnp.where(row, enter, basic), jnp.where(few, out, nonbasic), out


def _leaving(D: Array, col: Array, basic: Array, scale: Array) -> tuple[Array, Array]:
    """Row that blocks the entering variable (mask) and whether there is one. z0 leaves first among ties."""
    n = D.shape[0]
    slope = jnp.sum(jnp.where(col[None], D, 0.0), axis=1)
    blocks = slope < -1e-11 * jnp.maximum(1.0, jnp.abs(slope).max(axis=0))
    safe = jnp.where(blocks, -slope, 1.0)
    ratio = jnp.where(blocks, D[:, n + 1] / safe, jnp.inf)
    tied = blocks & (ratio <= jnp.min(ratio, axis=0) + 1e-12 * scale)
    second = jnp.where(tied, D[:, n + 2] / safe, jnp.inf)
    second = jnp.where(tied & (basic == 2 * n), -jnp.inf, second)
    return _one_hot(jnp.argmin(second, axis=0), n), blocks.any(axis=0)


def _lemke(A: Array, b: Array, most: int) -> tuple[Array, Array, Array]:
    n, T = b.shape[0], b.shape[1:]
    ones = jnp.ones((n, 1, *T))
    # Generic positive weights: no two rows stay tied.
    weights = 1.0 + np.modf(np.sqrt(2.0) * np.arange(1, n + 1))[0].reshape((n,) + (1,) * len(T))
    D = jnp.concatenate([A, ones, b[:, None], ones * weights[:, None]], axis=1)
    scale = jnp.abs(b).max(axis=0) + 1e-300

    def count(start: int, size: int) -> Array:
        return jnp.arange(start, start + size).reshape((size,) + (1,) * len(T)) + jnp.zeros(T, int)

    basic, nonbasic = count(0, n), count(n, n + 1)
    # z0 enters; the most negative b leaves (ties by the perturbation).
    tied = b <= b.min(axis=0) + 1e-14 * scale
    row = _one_hot(jnp.argmin(jnp.where(tied, weights, jnp.inf), axis=0), n)
    col = count(0, n + 3) == n
    done = (b >= 0).all(axis=0)
    D1, basic1, nonbasic1, out = _exchange(D, basic, nonbasic, row, col)
    start = (
        jnp.where(done, D, D1),
        jnp.where(done, basic, basic1),
        jnp.where(done, nonbasic, nonbasic1),
        out,
        jnp.where(done, SOLVED, UNFINISHED),
        jnp.zeros(T, int),
    )

    def running(carry):
        return jnp.any((carry[4] == UNFINISHED) & (carry[5] < most))

    def body(carry):
        D, basic, nonbasic, out, status, pivots = carry
        enter = jnp.where(out < n, out + n, out - n)
        col = jnp.concatenate([nonbasic == enter, jnp.zeros((2, *T), bool)])
        row, found = _leaving(D, col, basic, scale)
        D2, basic2, nonbasic2, out2 = _exchange(D, basic, nonbasic, row, col)
        going = (status == UNFINISHED) & (pivots < most)
        move = going & found
        status = jnp.where(going, jnp.where(found, jnp.where(out2 == 2 * n, SOLVED, UNFINISHED), RAY), status)
        return (
            jnp.where(move, D2, D),
            jnp.where(move, basic2, basic),
            jnp.where(move, nonbasic2, nonbasic),
            jnp.where(move, out2, out),
            status,
            pivots + going,
        )

    D, basic, _, _, status, pivots = jax.lax.while_loop(running, body, start)
    # z_i is the basic value of variable n + i, or zero.
    z = jnp.sum(jnp.where(basic[None] == count(n, n)[:, None], D[:, n + 1][None], 0.0), axis=1)
    return jnp.maximum(z, 0.0), status, pivots


@jax.custom_jvp
def _differentiable(A: Array, b: Array, z: Array) -> Array:
    return z


@_differentiable.defjvp
def _rule(primals, tangents):
    # Implicit function theorem on the active set: (D A + I - D) dz = -D (dA z + db); ties z = w = 0 count as inactive.
    A, b, z = primals
    dA, db, _ = tangents
    n = b.shape[0]
    active = (z > _times(A, z) + b).astype(float)
    eye = jnp.eye(n).reshape((n, n) + (1,) * (b.ndim - 1))
    # The 1e-12 only matters where A is singular on the active set, as for friction with a zero limit: multipliers of no effect.
    matrix = active[:, None] * (A + 1e-12 * eye) + (1 - active)[:, None] * eye
    right = -active * (_times(dA, z) + db)
    dz = jnp.linalg.solve(jnp.moveaxis(matrix, (0, 1), (-2, -1)), jnp.moveaxis(right, 0, -1)[..., None])
    return z, jnp.moveaxis(dz[..., 0], -1, 0)


def solve_lcp(A: Array, b: Array, most_pivots: int | None = None) -> Solution:
    """Solve ``w = A z + b, 0 <= z _|_ w >= 0``; A (n, n, *T), b (n, *T). Differentiable in both modes away from ties."""
    n = b.shape[0]
    if n == 0:
        return Solution(b, b, jnp.full(b.shape[1:], SOLVED), jnp.zeros(b.shape[1:], int))
    fixed = jax.lax.stop_gradient((A, b))
    z, status, pivots = _lemke(*fixed, most_pivots or 20 * n + 20)
    z = _differentiable(A, b, jax.lax.stop_gradient(z))
    return Solution(z, _times(A, z) + b, status, pivots)
