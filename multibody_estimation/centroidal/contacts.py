# SPDX-License-Identifier: Apache-2.0
"""From what sensors on the robot read to what the centroidal estimator takes."""

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.centroidal.problem import Measurement
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry.spatial import skew

__all__ = ['acceleration_at', 'sum_wrenches', 'total_wrench']


def total_wrench(
    wrenches: jax.Array, rotations: jax.Array, positions: jax.Array, anchor: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sum force/torque sensors at one instant to one wrench about the anchor (6,), with its full covariance (6, 6).

    With levers r_i from the anchor, force and moment share the noise of f_i:
    R = sum_i [[S_f, S_f [r_i]'], [[r_i] S_f, [r_i] S_f [r_i]' + S_m]].

    Args:
        wrenches: force [N], moment [N m] on the robot in each sensor's frame, about its origin; (s, 6).
        rotations: of each sensor frame to the world; (s, 3, 3).
        positions: of each sensor frame in the world, m; (s, 3).
        anchor: point to take moments about, m; (3,).
        noise: standard deviations of each sensor's six readings; (s, 6).
    """
    force = jnp.einsum('sij,sj->si', rotations, wrenches[:, :3])
    lever = positions - anchor
    moment = jnp.einsum('sij,sj->si', rotations, wrenches[:, 3:]) + jnp.cross(lever, force)
    s_f = jnp.einsum('sij,sj,skj->sik', rotations, noise[:, :3] ** 2, rotations)
    s_m = jnp.einsum('sij,sj,skj->sik', rotations, noise[:, 3:] ** 2, rotations)
    r = skew(lever)
    mixed = r @ s_f
    corner = mixed.sum(axis=0)
    covariance = jnp.block([[s_f.sum(axis=0), corner.T], [corner, (mixed @ jnp.swapaxes(r, -1, -2) + s_m).sum(axis=0)]])
    return jnp.concatenate([force.sum(axis=0), moment.sum(axis=0)]), covariance


def sum_wrenches(
    time: np.ndarray, wrenches: np.ndarray, rotations: np.ndarray, positions: np.ndarray, anchor: np.ndarray, noise: np.ndarray
) -> Measurement:
    """Sum force/torque sensors to one contact wrench about the anchor: `total_wrench` for n instants, time in s (n,)."""
    if np.ndim(wrenches) != 3 or not wrenches.shape[1]:
        raise EstimationError('No contact at all: name at least one force/torque sensor between the robot and the ground.')
    values, covariance = jax.vmap(total_wrench, (0, 0, 0, 0, None))(
        *(jnp.asarray(x, float) for x in (wrenches, rotations, positions, anchor, noise))
    )
    return Measurement('contact_wrench', time, np.asarray(values), np.asarray(covariance), anchor)


def acceleration_at(
    specific_force: np.ndarray,
    angular_velocity: np.ndarray,
    angular_acceleration: np.ndarray,
    lever: np.ndarray,
    gravity: np.ndarray,
) -> np.ndarray:
    """Move an accelerometer reading (world axes) along ``lever`` on the same rigid body: a + alpha x r + omega x (omega x r).

    Returns the acceleration in m/s^2, gravity added; all (n, 3). Taken as that of the center of mass this neglects how the
    center of mass moves within the body that carries the IMU: give it a noise that covers this, or use `whole_body`, which does
    not neglect it.
    """
    spin = np.cross(angular_acceleration, lever) + np.cross(angular_velocity, np.cross(angular_velocity, lever))
    return specific_force + gravity + spin
