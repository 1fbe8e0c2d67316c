# SPDX-License-Identifier: Apache-2.0
"""Unit quaternions as arrays with the four components (w, x, y, z) on the last axis; leading axes broadcast.

One convention in the whole package: a quaternion e takes body components to world components, and angular velocity w [rad/s]
is expressed in the BODY frame. Hence an orientation is advanced from the right, ``e+ = e Exp(h w)``, the body inertia is
constant, and ``boxminus`` gives a rotation vector in the frame of its second argument.
"""

from multibody_estimation._jax import jax, jnp
from multibody_estimation.geometry import components as c

__all__ = [
    'boxminus',
    'boxplus',
    'conjugate',
    'exp',
    'from_matrix',
    'identity',
    'log',
    'multiply',
    'normalise',
    'rotate',
    'to_matrix',
]

Array = jax.Array


def _parts(x: Array) -> tuple:
    return tuple(x[..., i] for i in range(x.shape[-1]))


def _join(parts: tuple) -> Array:
    return jnp.stack(jnp.broadcast_arrays(*parts), axis=-1)


def identity(*shape: int) -> Array:
    """Return identity rotations; shape (*shape, 4)."""
    return jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 0.0]), (*shape, 4))


def multiply(p: Array, q: Array) -> Array:
    """Hamilton product p q; shapes (..., 4)."""
    return _join(c.multiply(_parts(p), _parts(q)))


def conjugate(q: Array) -> Array:
    """Inverse rotation; shape (..., 4)."""
    return _join(c.conjugate(_parts(q)))


def normalise(q: Array) -> Array:
    """Return q scaled to unit length; shape (..., 4)."""
    return q / jnp.linalg.norm(q, axis=-1, keepdims=True)


def to_matrix(q: Array) -> Array:
    """Rotation matrix, body -> world; shape (..., 3, 3)."""
    return jnp.stack([_join(row) for row in c.rotation(_parts(q))], axis=-2)


def from_matrix(matrix: Array) -> Array:
    """Quaternion with w >= 0 of a rotation matrix; shape (..., 4).

    The largest of the four components is found first, so the result is accurate for every angle (Shepperd 1978).
    """
    R = jnp.asarray(matrix, dtype=float)
    xx, yy, zz = R[..., 0, 0], R[..., 1, 1], R[..., 2, 2]
    dx, dy, dz = R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]
    sx, sy, sz = R[..., 2, 1] + R[..., 1, 2], R[..., 0, 2] + R[..., 2, 0], R[..., 1, 0] + R[..., 0, 1]
    # Row i is 4 q_i q: any row is the quaternion up to scale, the one with the largest diagonal is well conditioned.
    rows = jnp.stack(
        [
            _join((1 + xx + yy + zz, dx, dy, dz)),
            _join((dx, 1 + xx - yy - zz, sz, sy)),
            _join((dy, sz, 1 - xx + yy - zz, sx)),
            _join((dz, sy, sx, 1 - xx - yy + zz)),
        ],
        axis=-2,
    )
    largest = jnp.argmax(jnp.diagonal(rows, axis1=-2, axis2=-1), axis=-1)
    q = normalise(jnp.take_along_axis(rows, largest[..., None, None], axis=-2)[..., 0, :])
    return jnp.where(q[..., :1] < 0, -q, q)


def rotate(q: Array, vector: Array) -> Array:
    """Take body components of a vector to world components; shapes (..., 4) and (..., 3)."""
    return _join(c.apply(c.rotation(_parts(q)), _parts(vector)))


def exp(rotation_vector: Array) -> Array:
    """Exponential of a rotation vector [rad]; shape (..., 3) -> (..., 4)."""
    return _join(c.exp(_parts(rotation_vector)))


def log(q: Array) -> Array:
    """Rotation vector [rad] of a unit quaternion, of length at most pi; shape (..., 4) -> (..., 3)."""
    return _join(c.log(_parts(q)))


def boxplus(pose: Array, step: Array) -> Array:
    """Move poses along tangent vectors: ``(r + d_lin, e Exp(d_ang))``; shapes (..., 7) and (..., 6) -> (..., 7)."""
    return jnp.concatenate([pose[..., :3] + step[..., :3], multiply(pose[..., 3:], exp(step[..., 3:]))], axis=-1)


def boxminus(end: Array, start: Array) -> Array:
    """Tangent vector from ``start`` to ``end``, so that ``boxplus(start, boxminus(end, start)) == end``; shape (..., 6)."""
    turn = log(multiply(conjugate(start[..., 3:]), end[..., 3:]))
    return jnp.concatenate([end[..., :3] - start[..., :3], turn], axis=-1)
