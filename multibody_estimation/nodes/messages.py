# SPDX-License-Identifier: Apache-2.0
"""Samples of a device as ROS messages: one maker per message type, chosen by the channel's description."""

import math
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from geometry_msgs.msg import Vector3, Wrench, WrenchStamped
from sensor_msgs.msg import Imu, JointState

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.hardware.device import Channel, Sample
from multibody_estimation.msg import ActuatorCommand, LinkWrenches, RawStrain
from multibody_estimation.nodes.common import to_stamp

__all__ = ['Make', 'maker']

Make = Callable[[Sample], Any]


def _joint_state(channel: Channel) -> Make:
    names = list(channel.columns)

    def make(sample: Sample) -> JointState:
        message = JointState()
        message.name = names
        message.position = array('d', sample.parts.get('', ()))
        message.velocity = array('d', sample.parts.get('/velocities', ()))
        message.effort = array('d', sample.parts.get('/torques', ()))
        return message

    return make


def _imu(channel: Channel) -> Make:
    def covariance(part: str) -> np.ndarray:
        # Silent zeros would mean "unknown" to everyone who fuses these (sensor_msgs/Imu).
        noise = channel.noise.get(part)
        if not noise:
            raise EstimationError(
                f"{channel.topic}: the device states no noise for its {part.strip('/')}; it must, in the channel's description."
            )
        return np.diag(np.square(noise)).ravel()

    acceleration, rotation = covariance('/accelerometer'), covariance('/gyroscope')
    absent = np.array([-1.0, *[0.0] * 8])

    def make(sample: Sample) -> Imu:
        message = Imu(
            orientation_covariance=absent, linear_acceleration_covariance=acceleration, angular_velocity_covariance=rotation
        )
        a, w = sample.parts.get('/accelerometer'), sample.parts.get('/gyroscope')
        if a is not None:
            message.linear_acceleration = _vector(a)
        if w is not None:
            message.angular_velocity = _vector(w)
        return message

    return make


def _vector(v: Any) -> Vector3:
    return Vector3(x=float(v[0]), y=float(v[1]), z=float(v[2]))


def _wrench(channel: Channel) -> Make:
    def make(sample: Sample) -> WrenchStamped:
        values = sample.parts['']
        message = WrenchStamped()
        message.wrench.force, message.wrench.torque = _vector(values[:3]), _vector(values[3:])
        return message

    return make


def _strain(channel: Channel) -> Make:
    def make(sample: Sample) -> RawStrain:
        temperature = sample.parts.get('/temperature', (math.nan,))
        saturated = [bool(s) for s in sample.parts.get('/saturated', (False,) * 6)]
        return RawStrain(
            counts=[float(c) for c in sample.parts['']],
            saturated=saturated,
            temperature=float(temperature[0]),
            serial=channel.serial,
        )

    return make


def _command(channel: Channel) -> Make:
    names, kind = list(channel.columns), ActuatorCommand.VOLTAGE if channel.unit == 'V' else ActuatorCommand.TORQUE
    return lambda sample: ActuatorCommand(joint_names=names, kind=kind, values=array('d', sample.parts['']))


def _links(channel: Channel) -> Make:
    names = list(channel.columns)

    def make(sample: Sample) -> LinkWrenches:
        rows = np.asarray(sample.parts['']).reshape(-1, 6)
        wrenches = [Wrench(force=_vector(row[:3]), torque=_vector(row[3:])) for row in rows]
        return LinkWrenches(link_names=names, frame_ids=names, wrenches=wrenches)

    return make


MAKERS: dict[str, tuple[Any, Callable[[Channel], Make]]] = {
    'sensor_msgs/msg/JointState': (JointState, _joint_state),
    'sensor_msgs/msg/Imu': (Imu, _imu),
    'geometry_msgs/msg/WrenchStamped': (WrenchStamped, _wrench),
    'multibody_estimation/msg/RawStrain': (RawStrain, _strain),
    'multibody_estimation/msg/ActuatorCommand': (ActuatorCommand, _command),
    'multibody_estimation/msg/LinkWrenches': (LinkWrenches, _links),
}


def maker(channel: Channel, frame: str = '') -> tuple[Any, Make]:
    """Return the message class of a channel, and the function that makes its messages; frame overrides the channel's own."""
    if channel.message_type not in MAKERS:
        raise EstimationError(
            f"{channel.topic}: messages of type '{channel.message_type}' cannot be published.{did_you_mean(channel.message_type, MAKERS)}"
        )
    kind, build = MAKERS[channel.message_type]
    make = build(channel)
    frame = frame or channel.frame

    def complete(sample: Sample) -> Any:
        message = make(sample)
        message.header.stamp = to_stamp(sample.stamp)
        message.header.frame_id = frame
        return message

    return kind, complete
