# SPDX-License-Identifier: Apache-2.0
"""Measurement equations y = Y d + bY + offset + noise of every sensor, in the frames of the nodes (design page, section 3)."""

from dataclasses import dataclass

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.geometry.spatial import rotation_from_rpy, skew
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.settings import WrenchSensor, WrenchSetup
from multibody_estimation.wrench.tree_nodes import Nodes

__all__ = ['Term', 'sensor_terms']


@dataclass(frozen=True, eq=False)
class Term:
    """One sensor: it tells about one quantity of one node."""

    sensor: WrenchSensor
    target: str
    """``acceleration``, ``transmitted``, ``external``, ``joint`` or ``velocity`` (a gyroscope: no part of d)."""
    node: int
    row: int
    """First row in the measurement vector."""
    Y: np.ndarray
    """(size, 6); (1, 1) for ``joint``; on the angular velocity (3, 3) for ``velocity``."""
    B: np.ndarray
    """Bias of an accelerometer: on the monomials xx yy zz xy xz yz of the angular velocity; (size, 6)."""


def force_matrix(R: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Wrench in the node's frame -> in the frame that stands at p with rotation R there: (iXs)' of the design page."""
    return np.block([[R.T, np.zeros((3, 3))], [-R.T @ skew(p), R.T]])


def centripetal(p: np.ndarray) -> np.ndarray:
    """w x (w x p) as a linear map of the monomials of w; (3, 6)."""
    x, y, z = p
    return np.array([[0, -x, -x, y, z, 0], [-y, 0, -y, x, 0, z], [-z, -z, 0, 0, x, y]], dtype=float)


def sensor_terms(model: Model, setup: WrenchSetup, nodes: Nodes) -> tuple[Term, ...]:
    """Find each sensor's node and matrices; say which sensor sits where nothing is."""
    return tuple(_term(model, nodes, s, setup.rows[s.name].start) for s in setup.sensors)


def _link(model: Model, sensor: WrenchSensor, name: str) -> int:
    if name not in model.link_names:
        raise EstimationError(
            f"{sensor.where} is on link '{name}', which the model does not have.{did_you_mean(name, model.link_names)}"
        )
    return model.link_index(name)


def _moving_joint(model: Model, sensor: WrenchSensor) -> int:
    if sensor.on not in model.joint_names:
        extra = ' It is fixed.' if sensor.on in model.structure.link_joint_names else did_you_mean(sensor.on, model.joint_names)
        raise EstimationError(f"{sensor.where} is on joint '{sensor.on}', which is no moving joint of the model.{extra}")
    return model.joint_index(sensor.on)


def _term(model: Model, nodes: Nodes, sensor: WrenchSensor, row: int) -> Term:
    none = np.zeros((sensor.size, 6))
    R, p = rotation_from_rpy(np.array(sensor.rpy, dtype=float)), np.array(sensor.position, dtype=float)
    if not np.isfinite(np.r_[R.ravel(), p]).all():
        raise EstimationError(f'{sensor.where}: its position and rpy must be finite.')
    if sensor.type in ('joint_torque', 'joint_acceleration'):
        node = nodes.of_joint[_moving_joint(model, sensor)]
        if sensor.type == 'joint_acceleration':
            return Term(sensor, 'joint', node, row, np.ones((1, 1)), np.zeros((1, 6)))
        return Term(sensor, 'transmitted', node, row, nodes.nodes[node].motion[None].copy(), none)
    if sensor.type == 'force_torque':
        return _force_torque(model, nodes, sensor, row, R, p)
    k, at, origin = nodes.frames[_link(model, sensor, sensor.on)]
    node = nodes.of_link[k]
    R, p = at @ R, origin + at @ p
    if sensor.type == 'accelerometer':
        return Term(sensor, 'acceleration', node, row, np.hstack([R.T, -R.T @ skew(p)]), R.T @ centripetal(p))
    if sensor.type == 'angular_accelerometer':
        return Term(sensor, 'acceleration', node, row, np.hstack([np.zeros((3, 3)), R.T]), none)
    if sensor.type == 'gyroscope':
        return Term(sensor, 'velocity', node, row, R.T.copy(), none)
    Y = force_matrix(R, p)
    if sensor.type == 'external_wrench':
        return Term(sensor, 'external', node, row, Y, none)
    normal = np.array(sensor.normal, dtype=float)
    if normal.shape != (3,) or not np.isfinite(normal).all() or not np.linalg.norm(normal) > 1e-9:
        raise EstimationError(f'{sensor.where}: its normal must be a direction of three numbers, not {sensor.normal}.')
    return Term(sensor, 'external', node, row, (normal / np.linalg.norm(normal))[None] @ Y[:3], none)


def _force_torque(model: Model, nodes: Nodes, sensor: WrenchSensor, row: int, R: np.ndarray, p: np.ndarray) -> Term:
    s, none = model.structure, np.zeros((6, 6))
    if sensor.sub_mass is not None:  # the rest of the split link feels the sensor's wrench
        return Term(
            sensor, 'transmitted', nodes.of_link[nodes.frames[model.link_index(sensor.on)][0]], row, force_matrix(R, p), none
        )
    known = [n for n in nodes.joint_names if n]
    if sensor.on not in known:
        raise EstimationError(
            f"{sensor.where} is in joint '{sensor.on}', which is not there between two bodies of the model.{did_you_mean(sensor.on, known)}"
        )
    carried = s.link_joint_names.index(sensor.on)  # the joint's child in the model
    child = nodes.links[nodes.joint_names.index(sensor.on)]  # the joint's child seen from the base
    other = s.parents[carried] if child == carried else carried
    joint = nodes.joint_of_link[nodes.frames[child][0]]
    node = nodes.nodes[joint]
    frame = _link(model, sensor, sensor.frame_link) if sensor.frame_link else carried
    acts = _link(model, sensor, sensor.acts_on) if sensor.acts_on else carried
    for link in (frame, acts):
        if link not in (child, other):
            raise EstimationError(
                f"{sensor.where}: link '{s.link_names[link]}' is not at joint '{sensor.on}', which joins '{s.link_names[child]}' and '{s.link_names[other]}'."
            )
    if frame != child:
        if node.kind:
            raise EstimationError(
                f"{sensor.where}: joint '{sensor.on}' moves, and the sensor's frame is not on the side of '{s.link_names[child]}'. Choose another base, or give frame_link."
            )
        # The frame stands in the parent: express it in the child.
        R, p = node.rotation.T @ R, node.rotation.T @ (p - node.position)
    sign = 1.0 if acts == child else -1.0
    return Term(sensor, 'transmitted', joint, row, sign * force_matrix(R, p), none)
