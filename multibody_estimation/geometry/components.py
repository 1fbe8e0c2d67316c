# SPDX-License-Identifier: Apache-2.0
"""Vector and quaternion algebra on tuples of components.

A vector is a tuple ``(x, y, z)``, a quaternion ``(w, x, y, z)`` with the scalar first, a matrix a tuple of rows; each
component is an array of any shape, and all shapes broadcast. Written this way the batch (bodies, joints, time) is the
contiguous axis of every operation, which XLA fuses into one loop; arrays of small matrices are 10 to 30 times slower on a CPU.
"""

from collections.abc import Sequence
from typing import Any

from multibody_estimation._jax import jnp

__all__ = [
    'add', 'apply', 'apply_transposed', 'column', 'conjugate', 'cross', 'dot', 'exp', 'log', 'multiply', 'rotation', 'scale',
    'subtract',
]  # fmt: skip

Components = Sequence[Any]

# Below this squared half angle the closed forms are replaced by their series: (1e-3)^2, where four terms are exact in float64.
SMALL = 1e-6


def add(*vectors: Components) -> tuple:
    """Sum of vectors."""
    return tuple(sum(parts[1:], parts[0]) for parts in zip(*vectors))


def subtract(a: Components, b: Components) -> tuple:
    """Difference a - b."""
    return tuple(x - y for x, y in zip(a, b))


def scale(factor: Any, a: Components) -> tuple:
    """Vector times a scalar."""
    return tuple(factor * x for x in a)


def dot(a: Components, b: Components) -> Any:
    """Inner product."""
    parts = [x * y for x, y in zip(a, b)]
    return sum(parts[1:], parts[0])


def cross(a: Components, b: Components) -> tuple:
    """Cross product a x b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def apply(matrix: Sequence[Components], a: Components) -> tuple:
    """Matrix (tuple of rows) times vector."""
    return tuple(dot(row, a) for row in matrix)


def apply_transposed(matrix: Sequence[Components], a: Components) -> tuple:
    """Transposed matrix times vector; for a rotation body -> world this takes world components to body components."""
    return tuple(dot(tuple(row[i] for row in matrix), a) for i in range(len(matrix[0])))


def column(matrix: Sequence[Components], index: int) -> tuple:
    """One column of a matrix; of a rotation body -> world: that body axis in world components."""
    return tuple(row[index] for row in matrix)


def multiply(p: Components, q: Components) -> tuple:
    """Quaternion product p q (Hamilton)."""
    return (
        p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3],
        p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2],
        p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1],
        p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0],
    )


def conjugate(q: Components) -> tuple:
    """Conjugate: the inverse of a unit quaternion."""
    return (q[0], -q[1], -q[2], -q[3])


def rotation(q: Components) -> tuple:
    """Rotation matrix of a unit quaternion, as a tuple of rows."""
    w, x, y, z = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def exp(rotation_vector: Components) -> tuple:
    """Unit quaternion of a rotation vector [rad]: ``(cos(t/2), psi sin(t/2)/t)``, t = |psi|; smooth at zero in both AD modes."""
    half = dot(rotation_vector, rotation_vector) / 4
    small = half < SMALL
    # The closed form must never see zero, not even in the branch that is thrown away: its derivative there is NaN.
    t = jnp.sqrt(jnp.where(small, 1.0, half))
    cosine = jnp.where(small, 1 - half / 2 * (1 - half / 12 * (1 - half / 30)), jnp.cos(t))
    sinc = jnp.where(small, 1 - half / 6 * (1 - half / 20 * (1 - half / 42)), jnp.sin(t) / t)
    return (cosine, *scale(sinc / 2, rotation_vector))


def log(q: Components) -> tuple:
    """Rotation vector [rad], of length at most pi, of a unit quaternion; q and -q give the same; smooth at the identity."""
    sign = jnp.where(q[0] < 0, -1.0, 1.0)
    w, vector = sign * q[0], scale(sign, q[1:])
    square = dot(vector, vector)
    small = square < SMALL
    length = jnp.sqrt(jnp.where(small, 1.0, square))
    # asin(x)/x as a series in x^2 holds on the unit sphere, where x = |vec|.
    series = 1 + square / 6 * (1 + square * 9 / 20 * (1 + square * 25 / 42))
    factor = jnp.where(small, series, jnp.arctan2(length, jnp.where(small, 1.0, w)) / length)
    return scale(2 * factor, vector)
