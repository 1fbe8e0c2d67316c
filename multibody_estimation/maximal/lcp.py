# SPDX-License-Identifier: Apache-2.0
"""Linear complementarity problem by Lemke's algorithm: ``w = A z + b, 0 <= z _|_ w >= 0``.

Condensed dictionary with fixed shapes, so that it jits and vmaps; an infinitesimal perturbation of b (a second right-hand side
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
    """Shape (n,)."""
    w: Array
    """A z + b; shape (n,)."""
    status: Array
    """SOLVED, RAY (no solution was found along the path; z is not one) or UNFINISHED (out of pivots)."""
    pivots: Array


def _pivot(D: Array, row: Array, col: Array) -> Array:
    """Exchange basic ``row`` and non-basic ``col`` (one-hot vectors) of the dictionary x_B = D [x_N; 1; perturbation]."""
    pivot_row = row @ D
    pivot_col = D @ col
    inverse = 1 / (row @ pivot_col)
    # x_s = (x_r - rest of the row)/D_rs, put into all other rows.
    new_row = jnp.where(col > 0, inverse, -pivot_row * inverse)
    others = jnp.where(col[None, :] > 0, 0.0, D) + pivot_col[:, None] * new_row[None, :]
    return jnp.where(row[:, None] > 0, new_row[None, :], others)


def _leaving(D: Array, col: Array, basic: Array, scale: Array) -> tuple[Array, Array]:
    """Row that blocks the entering variable (one-hot) and whether there is one. z0 leaves first among ties."""
    n = D.shape[0]
    slope = D @ col
    blocks = slope < -1e-11 * jnp.maximum(1.0, jnp.abs(slope).max())
    safe = jnp.where(blocks, -slope, 1.0)
    ratio = jnp.where(blocks, D[:, n + 1] / safe, jnp.inf)
    tied = ratio <= jnp.min(ratio) + 1e-12 * scale
    second = jnp.where(tied & blocks, D[:, n + 2] / safe, jnp.inf)
    second = jnp.where(tied & blocks & (basic == 2 * n), -jnp.inf, second)
    return jax.nn.one_hot(jnp.argmin(second), n), blocks.any()


def _lemke(A: Array, b: Array, most: int) -> tuple[Array, Array, Array]:
    n = b.shape[0]
    # Generic positive weights: no two rows stay tied.
    perturbation = 1.0 + np.modf(np.sqrt(2.0) * np.arange(1, n + 1))[0]
    D = jnp.concatenate([A, jnp.ones((n, 1)), b[:, None], perturbation[:, None]], axis=1)
    scale = jnp.abs(b).max() + 1e-300
    basic = jnp.arange(n)
    nonbasic = jnp.arange(n, 2 * n + 1)

    # z0 enters; the most negative b leaves (ties by the perturbation).
    tied = b <= b.min() + 1e-14 * scale
    row = jax.nn.one_hot(jnp.argmin(jnp.where(tied, perturbation, jnp.inf)), n)
    col = jax.nn.one_hot(n, n + 3)
    done = (b >= 0).all()

    def exchange(D, basic, nonbasic, row, col):
        out = jnp.sum(jnp.where(row > 0, basic, 0))
        enter = jnp.sum(jnp.where(col[: n + 1] > 0, nonbasic, 0))
        D = _pivot(D, row, col)
        return D, jnp.where(row > 0, enter, basic), jnp.where(col[: n + 1] > 0, out, nonbasic), out

    D1, basic1, nonbasic1, out = exchange(D, basic, nonbasic, row, col)
    start = (
        jnp.where(done, D, D1),
        jnp.where(done, basic, basic1),
        jnp.where(done, nonbasic, nonbasic1),
        out,
        jnp.where(done, SOLVED, UNFINISHED),
        jnp.asarray(0),
    )

    def running(carry):
        return (carry[4] == UNFINISHED) & (carry[5] < most)

    def body(carry):
        D, basic, nonbasic, out, status, count = carry
        enter = jnp.where(out < n, out + n, out - n)
        col = jnp.concatenate([(nonbasic == enter).astype(float), jnp.zeros(2)])
        row, found = _leaving(D, col, basic, scale)
        D2, basic2, nonbasic2, out2 = exchange(D, basic, nonbasic, row, col)
        status = jnp.where(found, jnp.where(out2 == 2 * n, SOLVED, UNFINISHED), RAY)
        keep = lambda new, old: jnp.where(found, new, old)  # noqa: E731
        return keep(D2, D), keep(basic2, basic), keep(nonbasic2, nonbasic), out2, status, count + 1

    D, basic, _, _, status, count = jax.lax.while_loop(running, body, start)
    # z_i is the basic value of variable n + i, or zero.
    z = jnp.sum(jnp.where(basic[None, :] == n + jnp.arange(n)[:, None], D[:, n + 1][None, :], 0.0), axis=1)
    return jnp.maximum(z, 0.0), status, count


@jax.custom_jvp
def _differentiable(A: Array, b: Array, z: Array) -> Array:
    return z


@_differentiable.defjvp
def _rule(primals, tangents):
    # Implicit function theorem on the active set: (D A + I - D) dz = -D (dA z + db); ties z = w = 0 count as inactive.
    A, b, z = primals
    dA, db, _ = tangents
    n = b.shape[0]
    active = (z > A @ z + b).astype(float)
    matrix = active[:, None] * A + jnp.diag(1 - active)
    return z, jnp.linalg.solve(matrix, -active * (dA @ z + db)) if n else z


def solve_lcp(A: Array, b: Array, most_pivots: int | None = None) -> Solution:
    """Solve ``w = A z + b, 0 <= z _|_ w >= 0``; A (n, n), b (n,). Differentiable in both modes away from ties."""
    n = b.shape[0]
    if n == 0:
        return Solution(b, b, jnp.asarray(SOLVED), jnp.asarray(0))
    fixed = jax.lax.stop_gradient((A, b))
    z, status, pivots = _lemke(*fixed, most_pivots or 20 * n + 20)
    z = _differentiable(A, b, jax.lax.stop_gradient(z))
    return Solution(z, A @ z + b, status, pivots)
