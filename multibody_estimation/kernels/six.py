# SPDX-License-Identifier: Apache-2.0
"""6x6 matrices and 6-vectors with the samples on the last axis: products, factors, transforms between frames.

Products are written as multiply and sum, factors are unrolled: XLA on a CPU fuses them into loops over the samples, where a call of a
library per tiny matrix would cost more than its work.
"""

from typing import Any

from multibody_estimation._jax import jax, jnp

__all__ = [
    'cholesky',
    'cholesky_semidefinite',
    'congruence',
    'congruence_down',
    'cross',
    'eye',
    'force_to_parent',
    'logdet',
    'mm',
    'motion_to_child',
    'mtm',
    'mtv',
    'mv',
    'rotation',
    'solve',
    'solve_transposed',
    't',
]


def mm(a, b):
    return (a[:, :, None] * b[None]).sum(1)


def mtm(a, b):
    return (a[:, :, None] * b[:, None]).sum(0)


def mv(a, x):
    return (a * x[None]).sum(1)


def mtv(a, x):
    return (a * x[:, None]).sum(0)


def t(a):
    return jnp.swapaxes(a, 0, 1)


def eye():
    return jnp.eye(6)[:, :, None]


def cross(a, b):
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def cholesky(a):
    """Lower factor as nested lists, the diagonal inverted."""
    L: list[list[Any]] = [[None] * 6 for _ in range(6)]
    for j in range(6):
        for i in range(j, 6):
            s = a[i, j]
            for k in range(j):
                s = s - L[i][k] * L[j][k]
            L[i][j] = jax.lax.rsqrt(s) if i == j else s * L[j][j]
    return L


def cholesky_semidefinite(a):
    """Lower factor (6, 6, ...) of a semidefinite matrix and the inverses of its diagonal: a pivot that is rounding gives a zero column."""
    L: list[list[Any]] = [[jnp.zeros_like(a[0, 0])] * 6 for _ in range(6)]
    inverse = []
    for j in range(6):
        d = a[j, j] - sum((L[j][k] * L[j][k] for k in range(j)), jnp.zeros_like(a[0, 0]))
        good = (d > 1e-13 * a[j, j]) & (d > 1e-300)
        r = jnp.where(good, jax.lax.rsqrt(jnp.where(good, d, 1.0)), 0.0)
        inverse.append(r)
        for i in range(j, 6):
            s = a[i, j]
            for k in range(j):
                s = s - L[i][k] * L[j][k]
            L[i][j] = s * r
    return jnp.stack([jnp.stack(row) for row in L]), jnp.stack(inverse)


def solve(L, b):
    x: list[Any] = []
    for i in range(6):
        s = b[i]
        for k in range(i):
            s = s - L[i][k] * x[k]
        x.append(s * L[i][i])
    return jnp.stack(x)


def solve_transposed(L, b):
    x: list[Any] = [None] * 6
    for i in range(5, -1, -1):
        s = b[i]
        for k in range(i + 1, 6):
            s = s - L[k][i] * x[k]
        x[i] = s * L[i][i]
    return jnp.stack(x)


def logdet(L):
    return -2.0 * sum(jnp.log(L[i][i]) for i in range(6))


def rotation(axis, s, c):
    x, y, z = axis
    v = 1 - c
    return jnp.stack([
        jnp.stack([c + x * x * v, x * y * v - z * s, x * z * v + y * s]),
        jnp.stack([y * x * v + z * s, c + y * y * v, y * z * v - x * s]),
        jnp.stack([z * x * v - y * s, z * y * v + x * s, c + z * z * v]),
    ])  # fmt: skip


def motion_to_child(R, p, v):
    return jnp.concatenate([mtv(R, v[:3] + cross(v[3:], p)), mtv(R, v[3:])])


def force_to_parent(R, p, f):
    a, b = mv(R, f[:3]), mv(R, f[3:])
    return jnp.concatenate([a, b + cross(p, a)])


def congruence(R, p, m):
    """X'mX."""
    Rt, z = t(R), jnp.zeros_like(p[0])
    a, b, c, d = (mm(R, mm(x, Rt)) for x in (m[:3, :3], m[:3, 3:], m[3:, :3], m[3:, 3:]))
    S = jnp.stack([jnp.stack([z, -p[2], p[1]]), jnp.stack([p[2], z, -p[0]]), jnp.stack([-p[1], p[0], z])])
    b = b - mm(a, S)
    d, c = d - mm(c, S) + mm(S, b), c + mm(S, a)
    return jnp.concatenate([jnp.concatenate([a, b], 1), jnp.concatenate([c, d], 1)], 0)


def congruence_down(R, p, m):
    """X m X', the way down."""
    Rt, z = t(R), jnp.zeros_like(p[0])
    S = jnp.stack([jnp.stack([z, -p[2], p[1]]), jnp.stack([p[2], z, -p[0]]), jnp.stack([-p[1], p[0], z])])
    a, b, c, d = m[:3, :3], m[:3, 3:], m[3:, :3], m[3:, 3:]
    # X = [R', -R'S; 0, R']
    a, b = a - mm(S, c), b - mm(S, d)
    a, c = a + mm(b, S), c + mm(d, S)
    a, b, c, d = (mm(Rt, mm(x, R)) for x in (a, b, c, d))
    return jnp.concatenate([jnp.concatenate([a, b], 1), jnp.concatenate([c, d], 1)], 0)
