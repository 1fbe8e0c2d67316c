# SPDX-License-Identifier: Apache-2.0
"""From joint angles, an IMU and the wrenches at the feet to what the centroidal estimator takes, instant by instant.

The base hangs on the foot that bears the robot: that foot stands still, so the joint angles give the pose of the base (its
orientation also from the IMU, where wanted) and the joint rates its velocity (the angular one from the gyroscope, where there
is one). A foot that comes down is given a place on the ground, the mean over the time it stands beside the bearing one, and
may then bear the base in turn. The world is thus that of the footholds: their errors add up step by step, moving center of mass
and anchors alike. They are not part of the covariances, and they do not disturb momenta and forces. A robot that jumps or slips
does not know afterwards how far.

Sensor noise is carried to the measurements to first order: with v = (base twist, joint rates) = N e, e the independent
readings, the momentum (p, L) = A_G v has covariance A_G N Sigma N' A_G', and the center of mass likewise.
"""

from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp, value
from multibody_estimation.centroidal.body import WholeBody
from multibody_estimation.centroidal.contacts import total_wrench
from multibody_estimation.geometry import quaternion
from multibody_estimation.geometry.spatial import rotation_from_rpy, skew
from multibody_estimation.tree import accelerations, centroidal_momentum_matrix, forward_kinematics, jacobian, velocities
from multibody_estimation.tree.momentum import center_of_mass, center_of_mass_acceleration, total_mass

__all__ = ['Footholds', 'Instant', 'Measured', 'com_acceleration', 'measure_instant', 'stand']


@value
class Instant:
    """Readings of one instant; those of sensors that the robot does not have are zero and not looked at."""

    positions: Any
    """Joint angles in the model's order, rad; (nj,)."""
    velocities: Any
    """rad/s; (nj,)."""
    wrenches: Any
    """On the robot at each contact, in the contact link's axes about its origin: force N, moment N m; (nc, 6)."""
    gyroscope: Any
    """rad/s, IMU's axes; (3,)."""
    orientation: Any
    """IMU to world, w x y z; (4,)."""


@value
class Footholds:
    """Where the feet stand; what must be remembered from one instant to the next."""

    pose: jax.Array
    """Of the contact frames in the world: position m, quaternion w x y z; (nc, 7)."""
    count: jax.Array
    """Instants averaged; (nc,)."""
    standing: jax.Array
    """(nc,) bool."""
    bearing: jax.Array
    """Number of the foot that the base hangs on."""


@value
class Measured:
    """What the whole body says of the center of mass at one instant."""

    values: dict[str, jax.Array]
    """``center_of_mass``, ``linear_momentum``, ``angular_momentum``, ``contact_wrench``."""
    covariance: dict[str, jax.Array]
    anchor: jax.Array
    """Mean of the footholds that stand, m; (3,)."""
    supported: jax.Array
    """Whether any foot stands: if not, the base is not known, and no more is the center of mass."""
    switched: jax.Array
    """Whether a foot came down or left since the last instant."""
    base_position: jax.Array
    base_rotation: jax.Array
    """Base to world; (3, 3)."""
    velocity: jax.Array
    """Base twist in base axes, then joint rates; (nv,)."""


def _imu_frame(body: WholeBody) -> tuple[str, Any, Any]:
    """Link of the IMU, its rotation and position there."""
    model = body.model
    if body.imu not in model.sensor_names:
        return body.imu, np.eye(3), np.zeros(3)
    s = model.sensor_index(body.imu)
    return model.link_names[model.structure.sensor_links[s]], rotation_from_rpy(model.sensor_rpy[s]), model.sensor_position[s]


def _feet(body: WholeBody, joints: jax.Array):
    """Rotations, positions (in the base) of the feet, and their Jacobians by the joint rates in base axes (nc, 6, nj)."""
    at_base = jnp.concatenate([jnp.array([0.0, 0, 0, 1, 0, 0, 0]), joints])
    R, p = forward_kinematics(body.model, at_base)
    where = np.array([body.model.link_index(c) for c in body.contacts])
    J = jnp.stack([jacobian(body.model, at_base, c)[:, 6:] for c in body.contacts])
    if not body.imu:
        return R[where], p[where], J, None, None
    link, turn, _ = _imu_frame(body)
    return R[where], p[where], J, R[body.model.link_index(link)] @ turn, jacobian(body.model, at_base, link)[3:, 6:]


def _level(pose: jax.Array, flat: bool) -> jax.Array:
    """Put poses on the ground: height zero, of a flat foot only the turn about the vertical is left; (..., 7)."""
    if not flat:
        return pose.at[..., 2].set(0.0)
    kept = pose * jnp.array([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    return kept.at[..., 3:].set(quaternion.normalise(kept[..., 3:]))


def _place(rotation: jax.Array, origin: jax.Array, R: jax.Array, p: jax.Array) -> jax.Array:
    """Poses of frames (R, p) of the base in the world; (nc, 7)."""
    turned = quaternion.from_matrix(rotation @ R)
    return jnp.concatenate([origin + jnp.einsum('ij,nj->ni', rotation, p), turned], axis=1)


def stand(body: WholeBody, first: Instant) -> Footholds:
    """Put the world under the robot: origin amid the feet that stand, axes those of the one that bears most (or the IMU's)."""
    R, p, _, imu, _ = _feet(body, first.positions)
    force = jnp.linalg.norm(first.wrenches[:, :3], axis=1)
    bearing = jnp.argmax(force)
    base = quaternion.to_matrix(first.orientation) @ imu.T if body.imu_orientation else R[bearing].T
    standing = (force > body.contact_force) | (jnp.arange(len(force)) == bearing)
    pose = _place(base, jnp.zeros(3), R, p)
    pose = pose.at[:, :3].add(-jnp.sum(pose[:, :3] * standing[:, None], axis=0) / standing.sum())
    return Footholds(_level(pose, body.flat_feet) if body.level_ground else pose, jnp.ones(len(p)), standing, bearing)


def measure_instant(body: WholeBody, footholds: Footholds, now: Instant) -> tuple[Footholds, Measured]:
    """Follow the footholds by one instant and compute what is measured there."""
    R, p, J, imu, imu_J = _feet(body, now.positions)
    nj = len(now.positions)

    # Which feet stand, and which one bears the base: it goes on doing so while it has a fair share.
    force = jnp.linalg.norm(now.wrenches[:, :3], axis=1)
    standing = force > body.contact_force * jnp.where(footholds.standing, 0.5, 1.0)
    old = footholds.bearing
    bearing = jnp.where((standing[old] & (force[old] > 0.3 * force.max())) | ~standing.any(), old, jnp.argmax(force))

    # Pose of the base, of the feet in the world.
    hold = footholds.pose[bearing]
    base = (
        quaternion.to_matrix(now.orientation) @ imu.T if body.imu_orientation else quaternion.to_matrix(hold[3:]) @ R[bearing].T
    )
    origin = hold[:3] - base @ p[bearing]
    kinematic = _place(base, origin, R, p)
    seen = jnp.where(standing[:, None], _level(kinematic, body.flat_feet), kinematic) if body.level_ground else kinematic
    count = jnp.where(standing & footholds.standing, footholds.count + 1, 1.0)
    mean = quaternion.boxplus(footholds.pose, quaternion.boxminus(seen, footholds.pose) / count[:, None])
    pose = jnp.where((jnp.arange(len(p)) == bearing)[:, None], footholds.pose, mean)

    # v = N e: the bearing foot does not move, v_base + w x p + J_lin qdot = 0; w from the gyroscope or from that foot too.
    def carry(turn: Any) -> jax.Array:
        rest = jnp.concatenate([jnp.zeros((3, 3)), J[bearing, :3]], axis=1)
        return jnp.concatenate([skew(p[bearing]) @ turn - rest, turn, jnp.eye(3 + nj)[3:]])

    by_foot = jnp.concatenate([jnp.zeros((3, 3)), -J[bearing, 3:]], axis=1)
    by_imu = jnp.concatenate([imu, -imu_J], axis=1) if body.imu else by_foot
    moved, driven = carry(by_imu if body.imu_orientation else by_foot), carry(by_imu)
    pose_noise = jnp.concatenate([body.orientation_noise, body.encoder_noise])
    rate_noise = jnp.concatenate([body.gyroscope_noise, body.velocity_noise])

    q = jnp.concatenate([origin, quaternion.from_matrix(base), now.positions])
    v = driven @ jnp.concatenate([now.gyroscope, now.velocities])
    A = centroidal_momentum_matrix(body.model, q)
    momentum, L = jnp.split(A @ v, 2)
    # Of the angles' noise, momenta feel the base's tilt, dh = -[h] dtheta; what it does to A beside that is far below the rates'.
    tilt = base @ moved[3:6] * pose_noise
    rates = A @ driven * rate_noise
    spread_p = jnp.concatenate([rates[:3], skew(momentum) @ tilt], axis=1)
    spread_L = jnp.concatenate([rates[3:], skew(L) @ tilt], axis=1)
    spread_c = A[:3] @ moved * pose_noise / total_mass(body.model)
    anchor = jnp.sum(pose[:, :3] * standing[:, None], axis=0) / jnp.maximum(standing.sum(), 1)
    anchor = jnp.where(standing.any(), anchor, hold[:3])
    turned = quaternion.to_matrix((pose if body.flat_feet else kinematic)[:, 3:])
    wrench, wrench_covariance = total_wrench(now.wrenches, turned, pose[:, :3], anchor, body.wrench_noise)
    if not body.flat_feet:  # the axes of the wrenches are only as sure as the joints: d(R f) = -[R f] dtheta
        turns = jnp.einsum('ij,njk->nik', base, moved[3:6] + jnp.concatenate([jnp.zeros((len(p), 3, 3)), J[:, 3:]], axis=2))
        f, m = (jnp.einsum('nij,nj->ni', turned, now.wrenches[:, part]) for part in (slice(0, 3), slice(3, 6)))
        lever = skew(pose[:, :3] - anchor)
        spread = -jnp.concatenate([skew(f) @ turns, (skew(m) + lever @ skew(f)) @ turns], axis=1).sum(axis=0) * pose_noise
        wrench_covariance = wrench_covariance + spread @ spread.T
    values = {
        'center_of_mass': center_of_mass(body.model, q), 'contact_wrench': wrench, 'angular_momentum': L,
        'linear_momentum': momentum,
    }  # fmt: skip
    covariance = {
        'center_of_mass': spread_c @ spread_c.T + jnp.eye(3) * body.placement_noise**2, 'contact_wrench': wrench_covariance,
        'angular_momentum': spread_L @ spread_L.T, 'linear_momentum': spread_p @ spread_p.T,
    }  # fmt: skip
    switched = (standing != footholds.standing).any()
    after = Footholds(pose, count, standing, bearing)
    return after, Measured(values, covariance, anchor, standing.any(), switched, origin, base, v)


def com_acceleration(
    body: WholeBody, seen: Measured, joints: jax.Array, rates: jax.Array, specific_force: jax.Array, interval: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Acceleration of the center of mass from the accelerometer: value (3,) m/s^2 and covariance (3, 3).

    The reading says how the IMU moves; how the center of mass moves beside it follows from ``rates``, the rates of
    ``seen.velocity`` (those of the base's linear velocity cancel), taken as central differences over twice ``interval`` s.
    """
    model = body.model
    link, turn, lever = _imu_frame(body)
    k = model.link_index(link)
    q = jnp.concatenate([seen.base_position, quaternion.from_matrix(seen.base_rotation), joints])
    R = forward_kinematics(model, q)[0][k]
    w, a = velocities(model, q, seen.velocity)[k, 3:], accelerations(model, q, seen.velocity, rates)[k]
    at_imu = R @ (a[:3] + jnp.cross(a[3:], lever) + jnp.cross(w, jnp.cross(w, lever)))
    R_imu = R @ turn
    found = R_imu @ specific_force + model.gravity + center_of_mass_acceleration(model, q, seen.velocity, rates) - at_imu
    beside = centroidal_momentum_matrix(model, q)[:3] / total_mass(model) - jacobian(model, q, link, lever)[:3]
    *_, imu, imu_J = _feet(body, joints)
    by_readings = beside[:, 3:6] @ jnp.concatenate([imu, -imu_J], axis=1)
    by_readings = by_readings.at[:, 3:].add(beside[:, 6:]) * jnp.concatenate([body.gyroscope_noise, body.velocity_noise])
    spread = by_readings / (jnp.sqrt(2.0) * interval)
    return found, (R_imu * body.accelerometer_noise**2) @ R_imu.T + spread @ spread.T
