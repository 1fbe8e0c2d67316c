# SPDX-License-Identifier: Apache-2.0
"""Normal equations of a chain of states with shared parameters: assembly, block Cholesky, substitution; in time linear in the chain.

    H = [[T, C], [C', P]],   T block tridiagonal: D (N, b, b) on the diagonal, E (N, b, b) with E[k] in row k+1, column k.

The border C carries the gradient as its last column. Every function calls the compiled kernel where it is there, and otherwise its
twin in plain JAX, which gives the same numbers.
"""

import numpy as np

from multibody_estimation._jax import jax, jnp, static, value
from multibody_estimation.kernels import available

__all__ = ['Arrow', 'Factor', 'assemble', 'assemble_twin', 'back', 'back_twin', 'block_size', 'factor', 'factor_twin']


@value
class Arrow:
    """The normal equations J'J and J'r of a chain with border; pytree, so that groups of rows add up."""

    D: jax.Array
    """Diagonal blocks, (N, b, b)."""
    E: jax.Array
    """Couplings: row block k+1, column block k; (N, b, b), the last one zero."""
    C: jax.Array
    """Border columns and the gradient of the states as the last one, (N, b, p+1)."""
    P: jax.Array
    """Parameter block, the parameters' gradient in the last column, the cost at the end; (p+1, p+1)."""

    def __add__(self, other: 'Arrow') -> 'Arrow':
        return jax.tree.map(jnp.add, self, other)


@value
class Factor:
    """U (N, b, b) with U'U the eliminated diagonal blocks, Z (N, b, r) = U^-T [coupling, border, gradient], and the reduced system."""

    U: jax.Array
    Z: jax.Array
    S: jax.Array
    """Schur complement of the parameters, (p, p)."""
    g: jax.Array
    """Reduced gradient of the parameters, (p,)."""
    rest: jax.Array
    """Cost that the best state step alone would leave, by the damped quadratic model; ()."""
    ok: jax.Array
    """False where the damped T is not positive definite."""
    twisted: bool = static(default=True)


def block_size(unknowns: int, width: int) -> int:
    """Unknowns per block so that windows of ``width`` stages touch only neighbouring blocks."""
    return unknowns * max(1, width - 1)


def assemble(
    jacobian: jax.Array, residual: jax.Array, *, unknowns: int, width: int, stages: int, block: int, first: int = 0
) -> Arrow:
    """Normal equations of windows of stages.

    jacobian (rows, width * unknowns + p, m), residual (rows, m): time last; window k begins at stage k + first.
    """
    if not available('arrow_assemble'):
        return assemble_twin(jacobian, residual, unknowns=unknowns, width=width, stages=stages, block=block, first=first)
    N, p = _blocks(stages, unknowns, block), jacobian.shape[1] - width * unknowns
    shapes = [(N, block, block), (N, block, block), (N, block, p + 1), (p + 1, p + 1)]
    call = jax.ffi.ffi_call('multibody_arrow_assemble', [jax.ShapeDtypeStruct(s, jnp.float64) for s in shapes])
    out = call(jacobian, residual, s=np.int64(unknowns), width=np.int64(width), first=np.int64(first))
    return Arrow(*out)


def assemble_twin(
    jacobian: jax.Array, residual: jax.Array, *, unknowns: int, width: int, stages: int, block: int, first: int = 0
) -> Arrow:
    """`assemble` in plain JAX: products of each window, scattered into the blocks."""
    s, ws, m = unknowns, width * unknowns, jacobian.shape[2]
    p, N, group = jacobian.shape[1] - ws, _blocks(stages, unknowns, block), block // unknowns
    rows = jnp.concatenate([jacobian, residual[:, None]], axis=1)
    H = jnp.einsum('aim,ajm->mij', rows, rows)
    stage = np.arange(m)[:, None] + first + np.arange(ws)[None, :] // s
    blk, at = stage // group, (stage % group) * s + np.arange(ws) % s
    i, j = np.meshgrid(np.arange(ws), np.arange(ws), indexing='ij')
    same, below = blk[:, i] == blk[:, j], blk[:, i] == blk[:, j] + 1
    D = jnp.zeros((N, block, block)).at[blk[:, i], at[:, i], at[:, j]].add(jnp.where(same, H[:, :ws, :ws], 0.0))
    E = jnp.zeros((N, block, block)).at[blk[:, j], at[:, i], at[:, j]].add(jnp.where(below, H[:, :ws, :ws], 0.0))
    C = jnp.zeros((N, block, p + 1)).at[blk, at].add(H[:, :ws, ws:])
    return Arrow(D, E, C, H[:, ws:, ws:].sum(0))


def factor(arrow: Arrow, damping: jax.Array, metric: jax.Array) -> Factor:
    """Factorise T + damping * diag(metric) and reduce the border; metric (N, b)."""
    if not available('arrow_factor'):
        return factor_twin(arrow, damping, metric)
    N, b, p1 = arrow.C.shape
    r = -(-(b + p1) // 8) * 8
    shapes = [(N, b, b), (N, b, r), (p1, r - b), ()]
    call = jax.ffi.ffi_call('multibody_arrow_factor', [jax.ShapeDtypeStruct(s, jnp.float64) for s in shapes])
    U, Z, YY, ok = call(jnp.asarray(damping, jnp.float64), arrow.D, arrow.E, arrow.C, metric)
    reduced = arrow.P - YY[:, :p1]
    return Factor(U, Z, reduced[:-1, :-1], reduced[:-1, -1], reduced[-1, -1], ok > 0)


def factor_twin(arrow: Arrow, damping: jax.Array, metric: jax.Array) -> Factor:
    """`factor` in plain JAX: one pass over the blocks."""
    N, b, p1 = arrow.C.shape
    T = arrow.D + damping * jax.vmap(jnp.diag)(metric)

    def step(carry, block):
        (less_D, less_C), (D, E, C) = carry, block
        L = jnp.linalg.cholesky(D - less_D)
        z = jax.scipy.linalg.solve_triangular(L, jnp.concatenate([E.T, C - less_C], axis=1), lower=True)
        V, Y = z[:, :b], z[:, b:]
        return (V.T @ V, V.T @ Y), (L.T, z)

    _, (U, Z) = jax.lax.scan(step, (jnp.zeros((b, b)), jnp.zeros((b, p1))), (T, arrow.E, arrow.C))
    Y = Z[:, :, b:].reshape(N * b, p1)
    reduced = arrow.P - Y.T @ Y
    return Factor(U, Z, reduced[:-1, :-1], reduced[:-1, -1], reduced[-1, -1], jnp.isfinite(reduced).all(), twisted=False)


def back(factor: Factor, step: jax.Array) -> jax.Array:
    """State step -T^-1 (g + C step) for a parameter step (p,); shape (N, b)."""
    if not (factor.twisted and available('arrow_back')):
        return back_twin(factor, step)
    N, b, _ = factor.Z.shape
    call = jax.ffi.ffi_call('multibody_arrow_back', jax.ShapeDtypeStruct((N, b), jnp.float64))
    return call(factor.U, factor.Z, jnp.append(step, 1.0))


def back_twin(factor: Factor, step: jax.Array) -> jax.Array:
    """`back` in plain JAX, for a factor of `factor_twin`."""
    b, border = factor.U.shape[1], jnp.append(step, 1.0)

    def solve(following, block):
        U, z = block
        x = jax.scipy.linalg.solve_triangular(U, -(z[:, :b] @ following + z[:, b : b + border.size] @ border))
        return x, x

    return jax.lax.scan(solve, jnp.zeros(b), (factor.U, factor.Z), reverse=True)[1]


def _blocks(stages: int, unknowns: int, block: int) -> int:
    return -(-stages * unknowns // block)
