# SPDX-License-Identifier: Apache-2.0
"""Spatial (6-D) vectors and inertias on arrays; leading axes broadcast.

A motion is (linear, angular) = (v at the origin, w), a force is (force, moment about the origin), both with the linear part
first. Numbers that are known when a program is traced stay NumPy arrays, so that XLA never sees the arithmetic on them.
Reference: R. Featherstone, Rigid Body Dynamics Algorithms, Springer 2008, chapter 2.
"""

from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp

__all__ = ['apply', 'apply_transposed', 'cross', 'cross_force', 'cross_motion', 'inertia_times', 'move_force', 'multiply', 'namespace',
           'rotation_about', 'rotation_from_quaternion', 'rotation_from_rpy', 'rpy_from_rotation', 'skew']  # fmt: skip

Array = Any


def namespace(*arrays: Array) -> Any:
    """NumPy where every array is a NumPy array or number, else `jax.numpy`."""
    return jnp if any(isinstance(a, jax.Array) for a in arrays) else np


def cross(a: Array, b: Array) -> Array:
    """Cross product a x b; shapes (..., 3)."""
    xp = namespace(a, b)
    a0, a1, a2 = a[..., 0], a[..., 1], a[..., 2]
    b0, b1, b2 = b[..., 0], b[..., 1], b[..., 2]
    return xp.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis=-1)


def skew(a: Array) -> Array:
    """Matrix [a]x with [a]x b = a x b; shape (..., 3, 3)."""
    xp = namespace(a)
    x, y, z = a[..., 0], a[..., 1], a[..., 2]
    o = xp.zeros_like(x)
    return xp.stack([xp.stack([o, -z, y], -1), xp.stack([z, o, -x], -1), xp.stack([-y, x, o], -1)], -2)


# Products of 3x3 matrices as multiply and sum: XLA on a CPU fuses them, where a batched dot of tiny matrices is a call each.
def apply(matrix: Array, a: Array) -> Array:
    """Matrix times vector; shapes (..., 3, 3) and (..., 3)."""
    return (matrix * a[..., None, :]).sum(-1)


def apply_transposed(matrix: Array, a: Array) -> Array:
    """Transposed matrix times vector; shapes (..., 3, 3) and (..., 3)."""
    return (matrix * a[..., :, None]).sum(-2)


def multiply(a: Array, b: Array) -> Array:
    """Matrix product; shapes (..., 3, 3)."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def rotation_from_rpy(rpy: Array) -> Array:
    """Rotation Rz(yaw) Ry(pitch) Rx(roll) of URDF's fixed-axis angles [rad]; shape (..., 3) -> (..., 3, 3)."""
    xp = namespace(rpy)
    s, c = xp.sin(rpy), xp.cos(rpy)
    sr, sp, sy, cr, cp, cy = s[..., 0], s[..., 1], s[..., 2], c[..., 0], c[..., 1], c[..., 2]
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return xp.stack([xp.stack(row, -1) for row in rows], -2)


def rpy_from_rotation(rotation: np.ndarray) -> tuple[float, float, float]:
    """Roll, pitch, yaw [rad] of one known rotation matrix (3, 3); near pitch = +-90 deg, where only their sum counts, roll is zero."""
    R = rotation
    flat = float(np.hypot(R[0, 0], R[1, 0]))
    pitch = float(np.arctan2(-R[2, 0], flat))
    if flat < 1e-12:
        return 0.0, pitch, float(np.arctan2(-R[0, 1], R[1, 1]))
    return float(np.arctan2(R[2, 1], R[2, 2])), pitch, float(np.arctan2(R[1, 0], R[0, 0]))


def rotation_about(axis: Array, angle: Array) -> Array:
    """Rotation by an angle [rad] about a unit axis (Rodrigues); shapes (..., 3) and (...) -> (..., 3, 3)."""
    xp = namespace(axis, angle)
    s, v = xp.sin(angle)[..., None, None], 1.0 - xp.cos(angle)[..., None, None]
    K = skew(axis)
    return np.eye(3) + s * K + v * multiply(K, K)


def rotation_from_quaternion(quaternion: Array) -> Array:
    """Rotation body -> world of a quaternion (w, x, y, z), which is normalised here; shape (..., 4) -> (..., 3, 3)."""
    xp = namespace(quaternion)
    w, x, y, z = (quaternion[..., i] for i in range(4))
    s = 2.0 / (w * w + x * x + y * y + z * z)
    rows = [
        [1.0 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1.0 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1.0 - s * (x * x + y * y)],
    ]
    return xp.stack([xp.stack(row, -1) for row in rows], -2)


def cross_motion(v: Array, m: Array) -> Array:
    """Rate of a motion m carried along with velocity v, v x m; shapes (..., 6). Featherstone (2.33), linear first."""
    xp = namespace(v, m)
    w = v[..., 3:]
    return xp.concatenate([cross(w, m[..., :3]) + cross(v[..., :3], m[..., 3:]), cross(w, m[..., 3:])], -1)


def cross_force(v: Array, f: Array) -> Array:
    """Rate of a force f carried along with velocity v, v x* f; shapes (..., 6). Featherstone (2.34), linear first."""
    xp = namespace(v, f)
    w = v[..., 3:]
    return xp.concatenate([cross(w, f[..., :3]), cross(w, f[..., 3:]) + cross(v[..., :3], f[..., :3])], -1)


def inertia_times(mass: Array, first: Array, second: Array, v: Array) -> Array:
    """Momentum of a motion v, from mass (...), first moment m c (..., 3), inertia about the origin (..., 3, 3); (..., 6)."""
    xp = namespace(mass, first, second, v)
    linear, w = v[..., :3], v[..., 3:]
    return xp.concatenate([mass[..., None] * linear + cross(w, first), apply(second, w) + cross(first, linear)], -1)


def move_force(rotation: Array, position: Array, f: Array) -> Array:
    """Express a force given in frame B in frame A, where B stands at `position` with `rotation` in A; shapes (..., 6)."""
    xp = namespace(rotation, position, f)
    force = apply(rotation, f[..., :3])
    return xp.concatenate([force, apply(rotation, f[..., 3:]) + cross(position, force)], -1)
