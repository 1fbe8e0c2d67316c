# SPDX-License-Identifier: Apache-2.0
"""Poses, velocities, accelerations and Jacobians.

Everything is expressed in one frame that coincides, at this instant, with the base: then motions of a chain add up without
transforms, and the sums over the tree are products with constant 0/1 matrices instead of a recursion. Only the poses are
chained, in log2(depth) vector steps. (Featherstone 2008, chapters 4.1 and 5.3, in base coordinates.)
"""

from typing import Any, NamedTuple

import numpy as np

from multibody_estimation._jax import jnp
from multibody_estimation.geometry import spatial
from multibody_estimation.geometry.spatial import apply, apply_transposed, cross, cross_motion, multiply
from multibody_estimation.tree.bodies import Bodies, bodies, compose, layout
from multibody_estimation.tree.model import Model, check

__all__ = ['accelerations', 'forward_kinematics', 'jacobian', 'jacobian_rate_times_velocity', 'link_pose', 'sensor_pose', 'velocities']  # fmt: skip


class Frames(NamedTuple):
    """Poses of the bodies in the base, and the unit motion of each degree of freedom there."""

    body: Bodies
    base_rotation: Any
    """Base -> world; (3, 3)."""
    base_position: Any
    """Base origin in the world; (3,) [m]."""
    rotation: Any
    """Body -> base; (nb, 3, 3)."""
    position: Any
    """Body origin in the base frame; (nb, 3) [m]."""
    motion: Any
    """Unit motion of each degree of freedom in base coordinates; (nv, 6)."""


def frames(model: Model, position: Any) -> Frames:
    """Chain the joints."""
    at, body = layout(model.structure), bodies(model)
    q = jnp.asarray(position, dtype=float)
    joint_R, joint_p = jnp.asarray(body.rotation), jnp.asarray(body.position)
    b, iq, _ = at.turning
    if len(b):
        axis = model.axis[at.body_joint[b]]
        joint_R = joint_R.at[b].set(multiply(body.rotation[b], spatial.rotation_about(axis, q[iq])))
    b, iq, _ = at.sliding
    if len(b):
        joint_p = joint_p.at[b].add(apply(body.rotation[b], model.axis[at.body_joint[b]] * q[iq][:, None]))
    b, iq, _ = at.balls
    if len(b):
        joint_R = joint_R.at[b].set(multiply(body.rotation[b], spatial.rotation_from_quaternion(q[iq[:, None] + np.arange(4)])))
    b, iq, _ = at.free
    if len(b):
        joint_p = joint_p.at[b].add(apply(body.rotation[b], q[iq[:, None] + np.arange(3)]))
        joint_R = joint_R.at[b].set(
            multiply(body.rotation[b], spatial.rotation_from_quaternion(q[iq[:, None] + np.arange(3, 7)]))
        )
    R, p = compose(at.body_jumps, joint_R, joint_p)

    d = at.dof_body
    linear, angular = _local_motions(model)
    angular_base, origin = apply(R[d], angular), p[d]
    motion = jnp.concatenate([apply(R[d], linear) + cross(origin, angular_base), angular_base], -1)
    base_R: Any
    base_p: Any
    if model.floating:
        base_R, base_p = spatial.rotation_from_quaternion(q[3:7]), q[:3]
    else:
        base_R, base_p = np.eye(3), np.zeros(3)
    return Frames(body, base_R, base_p, R, p, motion)


def _local_motions(model: Model) -> tuple[Any, Any]:
    """Unit motion of each degree of freedom in its own body's frame, linear and angular; (nv, 3) each."""
    at = layout(model.structure)
    xp = spatial.namespace(model.axis)
    linear, angular = np.zeros((model.nv, 3)), np.zeros((model.nv, 3))
    if model.floating:
        linear[:3], angular[3:6] = np.eye(3), np.eye(3)
    for _, _, iv in zip(*at.balls):
        angular[iv : iv + 3] = np.eye(3)
    for _, _, iv in zip(*at.free):
        linear[iv : iv + 3], angular[iv + 3 : iv + 6] = np.eye(3), np.eye(3)
    if not len(model.joint_names):
        return linear, angular
    axis = model.axis[np.maximum(at.body_joint[at.dof_body], 0)]
    turns, slides = np.zeros((model.nv, 1), bool), np.zeros((model.nv, 1), bool)
    turns[at.turning[2]], slides[at.sliding[2]] = True, True
    return xp.where(slides, axis, linear), xp.where(turns, axis, angular)


def body_velocities(model: Model, f: Frames, velocity: Any) -> Any:
    """Velocity of each body in base coordinates; (nb, 6)."""
    return layout(model.structure).moves @ (f.motion * velocity[:, None])


def body_accelerations(model: Model, f: Frames, V: Any, velocity: Any, acceleration: Any) -> Any:
    """Spatial acceleration of each body in base coordinates, without gravity; (nb, 6)."""
    at = layout(model.structure)
    # S is constant in the moved body, so its rate is the body's velocity crossed with it.
    rate = cross_motion(V[at.dof_body], f.motion)
    return at.moves @ (f.motion * acceleration[:, None] + rate * velocity[:, None])


def _links(model: Model, f: Frames) -> tuple[Any, Any]:
    """Rotation and position of every link in the base frame."""
    b = layout(model.structure).link_body
    return multiply(f.rotation[b], f.body.link_rotation), f.position[b] + apply(f.rotation[b], f.body.link_position)


def _to_link(R: Any, p: Any, motion: Any) -> Any:
    """Express a motion of base coordinates in a frame at (R, p) there."""
    w = motion[..., 3:]
    return jnp.concatenate([apply_transposed(R, motion[..., :3] + cross(w, p * jnp.ones_like(w))), apply_transposed(R, w)], -1)


def forward_kinematics(model: Model, position: Any) -> tuple[Any, Any]:
    """Rotation (nl, 3, 3), link -> world, and origin in the world (nl, 3) [m] of every link."""
    check(model, position)
    f = frames(model, position)
    R, p = _links(model, f)
    return multiply(f.base_rotation[None], R), f.base_position + apply(f.base_rotation[None], p)


def link_pose(model: Model, position: Any, link: str) -> Any:
    """Pose of one link in the world as a homogeneous matrix; (4, 4)."""
    k = model.link_index(link)
    R, p = forward_kinematics(model, position)
    return jnp.concatenate([jnp.concatenate([R[k], p[k][:, None]], 1), jnp.array([[0.0, 0.0, 0.0, 1.0]])])


def sensor_pose(model: Model, position: Any, sensor: str) -> Any:
    """Pose of one sensor in the world as a homogeneous matrix; (4, 4)."""
    s = model.sensor_index(sensor)
    pose = link_pose(model, position, model.link_names[model.structure.sensor_links[s]])
    R, p = spatial.rotation_from_rpy(model.sensor_rpy[s]), model.sensor_position[s]
    top = jnp.concatenate([pose[:3, :3] @ R, (pose[:3, :3] @ p + pose[:3, 3])[:, None]], 1)
    return jnp.concatenate([top, pose[3:]])


def velocities(model: Model, position: Any, velocity: Any) -> Any:
    """Velocity of every link's origin and its angular velocity, both in the link's frame; (nl, 6)."""
    check(model, position, velocity)
    f = frames(model, position)
    V = body_velocities(model, f, jnp.asarray(velocity, dtype=float))
    return _to_link(*_links(model, f), V[layout(model.structure).link_body])


def accelerations(model: Model, position: Any, velocity: Any, acceleration: Any) -> Any:
    """Classical acceleration of every link's origin and its angular acceleration, in the link's frame, no gravity; (nl, 6)."""
    check(model, position, velocity, acceleration)
    f = frames(model, position)
    v, a = jnp.asarray(velocity, dtype=float), jnp.asarray(acceleration, dtype=float)
    b = layout(model.structure).link_body
    R, p = _links(model, f)
    V = body_velocities(model, f, v)
    A = _to_link(R, p, body_accelerations(model, f, V, v, a)[b])
    V = _to_link(R, p, V[b])
    return A.at[:, :3].add(cross(V[:, 3:], V[:, :3]))


def jacobian(model: Model, position: Any, link: str, point: Any = (0.0, 0.0, 0.0)) -> Any:
    """Map from the velocity vector to a link's (linear, angular) velocity in world axes; (6, nv).

    The linear part is that of a point given in the link's frame [m].
    """
    check(model, position)
    k = model.link_index(link)
    f = frames(model, position)
    R, p = _links(model, f)
    where = p[k] + apply(R[k], jnp.asarray(point, dtype=float))
    S = f.motion * layout(model.structure).moves[layout(model.structure).link_body[k]][:, None]
    linear = S[:, :3] + cross(S[:, 3:], where * jnp.ones_like(S[:, 3:]))
    return jnp.concatenate([apply(f.base_rotation[None], linear), apply(f.base_rotation[None], S[:, 3:])], -1).T


def jacobian_rate_times_velocity(model: Model, position: Any, velocity: Any, link: str) -> Any:
    """dJ/dt times velocity for `jacobian`: a link's classical acceleration in world axes while the vector's rate is zero; (6,)."""
    k = model.link_index(link)
    a = accelerations(model, position, velocity, np.zeros(model.nv))[k]
    R = forward_kinematics(model, position)[0][k]
    return jnp.concatenate([apply(R, a[:3]), apply(R, a[3:])])
