# SPDX-License-Identifier: Apache-2.0
"""From what sensors on the robot read to what the centroidal estimator takes."""

import numpy as np

from multibody_estimation.centroidal.problem import Measurement
from multibody_estimation.errors import EstimationError

__all__ = ['acceleration_at', 'sum_wrenches']


def _skew(a: np.ndarray) -> np.ndarray:
    o = np.zeros(a.shape[:-1])
    x, y, z = a[..., 0], a[..., 1], a[..., 2]
    return np.stack([np.stack(r, -1) for r in ((o, -z, y), (z, o, -x), (-y, x, o))], -2)


def sum_wrenches(
    time: np.ndarray, wrenches: np.ndarray, rotations: np.ndarray, positions: np.ndarray, anchor: np.ndarray, noise: np.ndarray
) -> Measurement:
    """Sum force/torque sensors to one contact wrench about the anchor, with its full covariance.

    With levers r_i from the anchor, force and moment share the noise of f_i:
    R = sum_i [[S_f, S_f [r_i]'], [[r_i] S_f, [r_i] S_f [r_i]' + S_m]].

    Args:
        time: s; (n,).
        wrenches: force [N], moment [N m] on the robot in each sensor's frame, about its origin; (n, s, 6).
        rotations: of each sensor frame to the world; (n, s, 3, 3).
        positions: of each sensor frame in the world, m; (n, s, 3).
        anchor: point to take moments about, m; (n, 3).
        noise: standard deviations of each sensor's six readings; (s, 6).
    """
    if wrenches.ndim != 3 or not wrenches.shape[1]:
        raise EstimationError('No contact at all: name at least one force/torque sensor between the robot and the ground.')
    force = np.einsum('nsij,nsj->nsi', rotations, wrenches[..., :3])
    lever = positions - anchor[:, None]
    moment = np.einsum('nsij,nsj->nsi', rotations, wrenches[..., 3:]) + np.cross(lever, force)
    s_f = np.einsum('nsij,sj,nskj->nsik', rotations, noise[:, :3] ** 2, rotations)
    s_m = np.einsum('nsij,sj,nskj->nsik', rotations, noise[:, 3:] ** 2, rotations)
    r = _skew(lever)
    mixed = r @ s_f
    covariance = np.zeros((len(time), 6, 6))
    covariance[:, :3, :3] = s_f.sum(axis=1)
    covariance[:, 3:, :3] = mixed.sum(axis=1)
    covariance[:, :3, 3:] = covariance[:, 3:, :3].swapaxes(1, 2)
    covariance[:, 3:, 3:] = (mixed @ r.swapaxes(-1, -2) + s_m).sum(axis=1)
    total = np.concatenate([force.sum(axis=1), moment.sum(axis=1)], axis=1)
    return Measurement('contact_wrench', time, total, covariance, anchor)


def acceleration_at(
    specific_force: np.ndarray,
    angular_velocity: np.ndarray,
    angular_acceleration: np.ndarray,
    lever: np.ndarray,
    gravity: np.ndarray,
) -> np.ndarray:
    """Move an accelerometer reading (world axes) along ``lever`` on the same rigid body: a + alpha x r + omega x (omega x r).

    Returns the acceleration in m/s^2, gravity added; all (n, 3). Taken as that of the center of mass this neglects how the
    center of mass moves within the body that carries the IMU: give it a noise that covers this.
    """
    spin = np.cross(angular_acceleration, lever) + np.cross(angular_velocity, np.cross(angular_velocity, lever))
    return specific_force + gravity + spin
