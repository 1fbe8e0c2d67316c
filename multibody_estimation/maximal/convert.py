# SPDX-License-Identifier: Apache-2.0
"""A tree in joint coordinates, so any URDF, as bodies and joints in maximal coordinates."""

from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry import quaternion
from multibody_estimation.maximal.build import Body, Joint, multibody
from multibody_estimation.maximal.model import Multibody, State
from multibody_estimation.tree.bodies import bodies as tree_bodies
from multibody_estimation.tree.bodies import layout

__all__ = ['from_tree', 'tree_state']

Array = jax.Array
KINDS = {'revolute': 'hinge', 'prismatic': 'slider', 'spherical': 'ball'}


def from_tree(model: tree.Model, *, compliance: float = 1e-8, damping: float = 1e-3, limits: bool = False) -> Multibody:
    """Bodies and joints of a tree, drawn at joint positions zero.

    Links that fixed joints hold together become one body, named after its first link; every moving joint is actuated, in the
    tree's order. Friction, springs, motors, rotor inertia and gravity are taken over; Stribeck friction is refused and motor
    delays belong to the inputs. ``limits`` takes over the joint limits (of revolute joints those within +-pi).
    ``compliance`` [m/N, rad/(N m)] and ``damping`` [s] are those of every joint row.
    """
    at, body = layout(model.structure), tree_bodies(model)
    names = [model.link_names[k] for k in at.body_link]
    position = np.zeros(model.nq)
    if model.floating:
        position[3] = 1.0
    for name, kind in zip(model.joint_names, model.joint_types):
        if kind in ('spherical', 'floating'):
            position[model.joint_positions(name)][-4] = 1.0
    R, p = (np.asarray(x) for x in tree.forward_kinematics(model, position))
    R, p = R[at.body_link], p[at.body_link]
    first = 0 if model.floating else 1
    parts = []
    for b in range(first, len(names)):
        mass = float(body.mass[b])
        if not mass > 0:
            raise EstimationError(
                f"Link '{names[b]}' (with what is fixed to it) has no mass; maximal coordinates need one on every body."
            )
        center = np.asarray(body.first[b]) / mass
        S = np.array([[0, -center[2], center[1]], [center[2], 0, -center[0]], [-center[1], center[0], 0]])
        inertia = np.asarray(body.second[b]) + mass * S @ S
        e = np.asarray(quaternion.from_matrix(jnp.asarray(R[b])))
        parts.append(Body(names[b], mass, 0.5 * (inertia + inertia.T), tuple(p[b]), tuple(e), tuple(center)))
    joints = []
    for j, (name, kind) in enumerate(zip(model.joint_names, model.joint_types)):
        if kind == 'floating':
            continue
        if float(model.stribeck[j]) != 0:
            raise EstimationError(f"Joint '{name}' has Stribeck friction, which maximal coordinates do not have; set it to zero.")
        b = int(np.flatnonzero(at.body_joint == j)[0])
        parent = int(at.parent[b])
        options: dict[str, Any] = {}
        if limits and kind != 'spherical':
            lower, upper = float(model.lower[j]), float(model.upper[j])
            if kind == 'prismatic' or (lower > -np.pi and upper < np.pi):
                options = {'lower': lower, 'upper': upper}
        axis = R[b] @ np.asarray(model.axis[j]) if kind != 'spherical' else R[b][:, 2]
        if kind == 'spherical':
            options['across'] = tuple(R[b][:, 0])
        joints.append(
            Joint(
                name, KINDS[kind], 'world' if parent < first else names[parent], names[b], at=tuple(p[b]), axis=tuple(axis),
                compliance=compliance, damping=damping, viscous=float(model.damping[j]), armature=float(model.armature[j]),
                coulomb=float(model.coulomb[j]), creep=float(model.friction_velocity[j]), gain=float(model.motor_gain[j]),
                back_emf=float(model.back_emf[j]), stiffness=float(model.stiffness[j]), rest=float(model.spring_rest[j]), **options,
            )
        )  # fmt: skip
    return multibody(parts, joints, gravity=tuple(np.asarray(model.gravity)), tilt=tuple(np.asarray(model.gravity_tilt)))


def tree_state(model: tree.Model, position: Any, velocity: Any) -> State:
    """State in maximal coordinates, of the bodies of `from_tree`, of a tree at a position (nq,) and velocity (nv,); jits."""
    at, body = layout(model.structure), tree_bodies(model)
    first = 0 if model.floating else 1
    links = at.body_link[first:]
    R, p = tree.forward_kinematics(model, position)
    V = tree.velocities(model, position, velocity)
    R, p, V = R[links], p[links], V[links]
    center = jnp.asarray(body.first)[first:] / jnp.asarray(body.mass)[first:, None]
    linear = jnp.einsum('bij,bj->bi', R, V[:, :3] + jnp.cross(V[:, 3:], center))
    pose = jnp.concatenate([p + jnp.einsum('bij,bj->bi', R, center), quaternion.from_matrix(R)], axis=1)
    return State(pose, jnp.concatenate([linear, V[:, 3:]], axis=1))
