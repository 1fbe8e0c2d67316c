# SPDX-License-Identifier: Apache-2.0
"""What estimators found, as messages."""

from array import array
from typing import Any

import numpy as np
from geometry_msgs.msg import Wrench
from sensor_msgs.msg import JointState

from multibody_estimation.identification import Fit
from multibody_estimation.msg import LinkWrenches, MultibodyState, ParameterEstimate
from multibody_estimation.nodes.common import to_stamp

__all__ = ['joint_state', 'link_wrenches', 'multibody_state', 'parameter_estimate']


def parameter_estimate(fit: Fit, stamp: int) -> ParameterEstimate:
    """The parameters of a fit; stamp: end of its data, ns."""
    known = {p.name: p for p in fit.robot.parameters}
    message = ParameterEstimate(
        names=list(fit.names), units=list(fit.units), at_bound=[h in (-1, 1) for h in fit.held], cost=float(fit.cost),
        iterations=int(fit.iterations), converged=bool(fit.converged), result=' '.join([fit.sentence, *fit.blind]),
    )  # fmt: skip
    message.values = array('d', fit.values)
    message.std_devs = array('d', fit.std)
    message.lower = array('d', [known[n].lower if n in known else -np.inf for n in fit.names])
    message.upper = array('d', [known[n].upper if n in known else np.inf for n in fit.names])
    message.correlation = array('d', np.asarray(fit.correlation).ravel())
    message.header.stamp = to_stamp(stamp)
    return message


def multibody_state(motion: Any, joints: tuple[str, ...], stamp: int, k: int, frame: str = '') -> MultibodyState:
    """The state at stage k of a motion; effort is the force that the model does not explain."""
    message = MultibodyState(joint_names=list(joints))
    message.header.stamp, message.header.frame_id = to_stamp(stamp), frame
    message.position, message.position_std_devs = array('d', motion.positions[:, k]), array('d', motion.positions_std[:, k])
    message.velocity, message.velocity_std_devs = array('d', motion.speeds[:, k]), array('d', motion.speeds_std[:, k])
    inner = min(max(k - 1, 0), motion.external.shape[1] - 1)
    message.effort, message.effort_std_devs = array('d', motion.external[:, inner]), array('d', motion.external_std[:, inner])
    return message


def joint_state(state: MultibodyState) -> JointState:
    """The same state for those who take JointState (robot_state_publisher, rviz2)."""
    return JointState(header=state.header, name=list(state.joint_names), position=state.position, velocity=state.velocity)


def link_wrenches(stamp: int, links: list[str], frames: list[str], wrenches: np.ndarray, covariances: np.ndarray) -> LinkWrenches:
    """Wrenches (n, 6), force then torque, N and N m, with covariances (n, 6, 6)."""
    message = LinkWrenches(link_names=links, frame_ids=frames)
    message.header.stamp = to_stamp(stamp)
    made = []
    for w in np.asarray(wrenches, dtype=float):
        wrench = Wrench()
        wrench.force.x, wrench.force.y, wrench.force.z = w[:3].tolist()
        wrench.torque.x, wrench.torque.y, wrench.torque.z = w[3:].tolist()
        made.append(wrench)
    message.wrenches = made
    message.covariances = array('d', np.asarray(covariances, dtype=float).ravel())
    return message
