# SPDX-License-Identifier: Apache-2.0
"""The one table between messages and signals: what each message type carries, and what the signals of a topic are called.

A message has *parts*, each of which is one `Signal`: an Imu has an accelerometer, a gyroscope and perhaps an orientation. The
functions read attributes only, so that messages of `rclpy` (live) and of `rosbags` (offline) go through the same code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError

__all__ = ['TABLE', 'Part', 'Reading', 'name_signals', 'read_message', 'stamp_of']

XYZ = ('x', 'y', 'z')
WRENCH = ('fx', 'fy', 'fz', 'tx', 'ty', 'tz')


@dataclass(frozen=True)
class Reading:
    """One sample of one signal."""

    columns: tuple[str, ...]
    values: Sequence[float]


@dataclass(frozen=True)
class Part:
    """What becomes one signal."""

    suffix: str
    """Appended to the topic's signal name; empty for the main part."""
    unit: str
    read: Callable[[Any], Reading | None]
    """None where this message does not carry the part."""
    field: str
    """Name of the message field, for overrides of the form ``topic#field``."""
    noise: Callable[[Any], tuple[float, ...]] = lambda message: ()
    """Standard deviations that the message itself states."""


def _named(names: str, field: str) -> Callable[[Any], Reading | None]:
    def read(message: Any) -> Reading | None:
        values = getattr(message, field)
        return Reading(tuple(getattr(message, names)), values) if len(values) else None

    return read


def _xyz(field: str) -> Callable[[Any], Reading]:
    def read(message: Any) -> Reading:
        v = getattr(message, field)
        return Reading(XYZ, (v.x, v.y, v.z))

    return read


def _std(field: str) -> Callable[[Any], tuple[float, ...]]:
    def noise(message: Any) -> tuple[float, ...]:
        # All zeros mean unknown, -1 in front means that the quantity is absent (sensor_msgs/Imu).
        diagonal = np.asarray(getattr(message, field), dtype=float)[::4]
        return tuple(np.sqrt(diagonal).tolist()) if (diagonal > 0).all() else ()

    return noise


def _imu(field: str) -> Callable[[Any], Reading | None]:
    read = _xyz(field)
    return lambda m: None if getattr(m, f'{field}_covariance')[0] == -1 else read(m)


def _orientation(message: Any) -> Reading | None:
    q = message.orientation
    absent = message.orientation_covariance[0] == -1 or not (q.x or q.y or q.z or q.w)
    return None if absent else Reading(('x', 'y', 'z', 'w'), (q.x, q.y, q.z, q.w))


def _wrench(message: Any) -> Reading:
    f, t = message.wrench.force, message.wrench.torque
    return Reading(WRENCH, (f.x, f.y, f.z, t.x, t.y, t.z))


def _links(message: Any) -> Reading | None:
    columns = tuple(f'{link}.{axis}' for link in message.link_names for axis in WRENCH)
    vectors = [v for w in message.wrenches for v in (w.force, w.torque)]
    return Reading(columns, [c for v in vectors for c in (v.x, v.y, v.z)]) if columns else None


def _array(message: Any) -> Reading:
    labels = message.layout.dim[0].label.split(',') if len(message.layout.dim) else []
    count = len(message.data)
    return Reading(tuple(labels) if len(labels) == count else tuple(map(str, range(count))), message.data)


def _temperature(message: Any) -> Reading | None:
    return Reading(('temperature',), (message.temperature,)) if np.isfinite(message.temperature) else None


TABLE: Mapping[str, tuple[Part, ...]] = {
    'sensor_msgs/msg/JointState': (
        Part('', 'rad', _named('name', 'position'), 'position'),
        Part('/velocities', 'rad/s', _named('name', 'velocity'), 'velocity'),
        Part('/torques', 'N m', _named('name', 'effort'), 'effort'),
    ),
    'sensor_msgs/msg/Imu': (
        Part(
            '/accelerometer', 'm/s^2', _imu('linear_acceleration'), 'linear_acceleration', _std('linear_acceleration_covariance')
        ),
        Part('/gyroscope', 'rad/s', _imu('angular_velocity'), 'angular_velocity', _std('angular_velocity_covariance')),
        Part('/orientation', '', _orientation, 'orientation'),
    ),
    'geometry_msgs/msg/WrenchStamped': (Part('', 'N, N m', _wrench, 'wrench'),),
    'std_msgs/msg/Float64MultiArray': (Part('', '', _array, 'data'),),
    'std_msgs/msg/Float64': (Part('', '', lambda m: Reading(('0',), (m.data,)), 'data'),),
    'multibody_estimation/msg/ActuatorCommand': (Part('', 'N m', _named('joint_names', 'values'), 'values'),),
    'multibody_estimation/msg/RawStrain': (
        Part('', 'counts', lambda m: Reading(WRENCH, m.counts), 'counts'),
        Part('/saturated', '', lambda m: Reading(WRENCH, m.saturated), 'saturated'),
        Part('/temperature', 'degC', _temperature, 'temperature'),
    ),
    'multibody_estimation/msg/MultibodyState': (
        Part('', 'rad', _named('joint_names', 'position'), 'position'),
        Part('/velocities', 'rad/s', _named('joint_names', 'velocity'), 'velocity'),
        Part('/torques', 'N m', _named('joint_names', 'effort'), 'effort'),
    ),
    'multibody_estimation/msg/LinkWrenches': (Part('', 'N, N m', _links, 'wrenches'),),
}
"""Message types that become signals, with their parts; the first part is the main one."""


def stamp_of(message: Any) -> int:
    """Header stamp in nanoseconds; 0 where there is no header or its stamp was not set."""
    header = getattr(message, 'header', None)
    return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec if header is not None else 0


def unit_of(part: Part, message: Any) -> str:
    """Unit of a part; commands say themselves whether they are torques or voltages."""
    return 'V' if part.field == 'values' and getattr(message, 'kind', 0) == 1 else part.unit


def read_message(message_type: str, message: Any) -> Iterable[tuple[Part, Reading]]:
    """Yield what a message carries, part by part; raise `EstimationError` where its arrays do not fit its names."""
    for part in TABLE[message_type]:
        reading = part.read(message)
        if reading is None:
            continue
        if len(reading.columns) != len(reading.values):
            raise EstimationError(f'{len(reading.columns)} names for {len(reading.values)} entries of {part.field}')
        yield part, reading


def join_name(base: str, suffix: str) -> str:
    """Name of a part's signal: ``encoders`` has ``joint_velocities`` and ``joint_torques`` beside it, others take the suffix."""
    if suffix and (base == 'encoders' or base.endswith('/encoders')):
        return f'{base[:-8]}joint_{suffix[1:]}'
    return base + suffix


def _split(topic: str, message_type: str) -> tuple[tuple[str, ...], str]:
    """Namespace and signal name of a topic."""
    parts = tuple(topic.strip('/').split('/'))
    if message_type == 'sensor_msgs/msg/JointState' and parts[-1] == 'joint_states':
        return parts[:-1], 'encoders'
    if message_type == 'multibody_estimation/msg/ActuatorCommand' and parts[-1] == 'applied_command':
        return parts[:-1], 'command'  # what the motor really got, as the driver tells it
    raw = message_type == 'sensor_msgs/msg/Imu' and parts[-1] == 'data_raw' and len(parts) > 1
    for root in ('ft', 'imu', 'truth'):
        if root in parts[:-1]:
            at = parts.index(root)
            return parts[:at], '/'.join(parts[at:-1] if raw else parts[at:])
    if raw:
        return parts[:-2], parts[-2]
    return parts[:-1], parts[-1]


def name_signals(topics: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the signal name for each topic (topic to message type) that carries signals.

    ``/joint_states`` becomes ``encoders``, ``/applied_command`` becomes ``command`` (and ``/command`` beside it
    ``requested_command``), ``/imu/data_raw`` becomes ``imu`` (with ``imu/accelerometer`` and so on), others keep their name. A namespace that all topics share is dropped. overrides: signal name to topic, e.g. ``{'encoders': '/arm/state'}``.
    """
    split = {topic: _split(topic, kind) for topic, kind in topics.items() if kind in TABLE}
    for topic, (space, name) in split.items():
        if name == 'command' and topic.endswith('/command') and f'{topic[:-7]}applied_command' in split:
            split[topic] = (space, 'requested_command')
    spaces = [space for space, _ in split.values()]
    shared = 0
    while spaces and all(len(s) > shared for s in spaces) and len({s[shared] for s in spaces}) == 1:
        shared += 1
    names = {t: '/'.join((*space[shared:], name)) for t, (space, name) in split.items()}
    for topic in list(names):
        if list(names.values()).count(names[topic]) > 1 and _split(topic, '')[1] != names[topic]:
            names[topic] = topic.strip('/')
    taken = {topic: name for name, topic in (overrides or {}).items() if '#' not in topic}
    # A name that an override gives away is no longer free for the topic that had it by default.
    names = {t: (t.strip('/') if n in taken.values() and t not in taken else n) for t, n in names.items()}
    return names | {t: n for t, n in taken.items() if t in names}
