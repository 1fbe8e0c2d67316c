# SPDX-License-Identifier: Apache-2.0
"""`write_bag`: a `Window` becomes a rosbag2 folder, by the same table that reads it back."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.definitions import PACKAGE, typestore
from multibody_estimation.recording.topics import WRENCH
from multibody_estimation.window import NANOSECONDS, Signal, Window

__all__ = ['write_bag']

Make = Callable[[int, int], Any]
"""Makes the message of a row: (row, stamp in ns) to message."""


def _header(stamp: int, frame: str) -> Any:
    types = typestore().types
    return types['std_msgs/msg/Header'](types['builtin_interfaces/msg/Time'](stamp // NANOSECONDS, stamp % NANOSECONDS), frame)


def _joint_state(parts: Mapping[str, Signal]) -> Make:
    make = typestore().types['sensor_msgs/msg/JointState']
    main = next(iter(parts.values()))
    none = np.zeros((len(main), 0))
    position, velocity, effort = (parts[k].values if k in parts else none for k in ('', '/velocities', '/torques'))
    return lambda row, stamp: make(_header(stamp, main.frame), list(main.columns), position[row], velocity[row], effort[row])


def _imu(parts: Mapping[str, Signal]) -> Make:
    types = typestore().types
    make, vector, quaternion = (
        types[f'{n}'] for n in ('sensor_msgs/msg/Imu', 'geometry_msgs/msg/Vector3', 'geometry_msgs/msg/Quaternion')
    )
    main = next(iter(parts.values()))

    def part(suffix: str, width: int) -> tuple[np.ndarray, np.ndarray]:
        signal = parts.get(suffix)
        if signal is None:
            return np.zeros((len(main), width)), np.array([-1.0, *[0.0] * 8])
        return signal.values, np.diag(np.square(signal.noise or (0.0,) * 3)[:3]).ravel()

    (a, Pa), (w, Pw), (o, Po) = part('/accelerometer', 3), part('/gyroscope', 3), part('/orientation', 4)
    return lambda row, stamp: make(_header(stamp, main.frame), quaternion(*map(float, o[row])), Po, vector(*map(float, w[row])), Pw,
                                   vector(*map(float, a[row])), Pa)  # fmt: skip


def _command(parts: Mapping[str, Signal]) -> Make:
    make, signal = typestore().types[f'{PACKAGE}/msg/ActuatorCommand'], parts['']
    kind = make.VOLTAGE if signal.unit == 'V' else make.TORQUE
    return lambda row, stamp: make(_header(stamp, signal.frame), list(signal.columns), kind, signal.values[row])


def _wrench(parts: Mapping[str, Signal]) -> Make:
    types, signal = typestore().types, parts['']
    make, wrench, vector = (types[f'geometry_msgs/msg/{n}'] for n in ('WrenchStamped', 'Wrench', 'Vector3'))

    def message(row: int, stamp: int) -> Any:
        v = signal.values[row].tolist()
        return make(_header(stamp, signal.frame), wrench(vector(*v[:3]), vector(*v[3:])))

    return message


def _strain(parts: Mapping[str, Signal]) -> Make:
    make, signal = typestore().types[f'{PACKAGE}/msg/RawStrain'], parts['']
    saturated = parts['/saturated'].values.astype(bool) if '/saturated' in parts else np.abs(signal.values) >= 32767
    warm = parts['/temperature'].values[:, 0] if '/temperature' in parts else np.full(len(signal), np.nan)
    return lambda row, stamp: make(_header(stamp, signal.frame), signal.values[row], saturated[row], float(warm[row]), '')


def _array(parts: Mapping[str, Signal]) -> Make:
    types, signal = typestore().types, parts['']
    layout = types['std_msgs/msg/MultiArrayLayout'](
        [types['std_msgs/msg/MultiArrayDimension'](','.join(signal.columns), len(signal.columns), len(signal.columns))], 0
    )
    make = types['std_msgs/msg/Float64MultiArray']
    return lambda row, stamp: make(layout, signal.values[row])


def _topic(signal: Signal) -> tuple[str, str, Callable[[Mapping[str, Signal]], Make]]:
    """Topic, suffix of the part and maker of the messages for a signal."""
    space, _, last = signal.name.rpartition('/')
    prefix = f'/{space}/' if space else '/'
    if last in ('encoders', 'joint_velocities', 'joint_torques'):
        suffix = {'encoders': '', 'joint_velocities': '/velocities', 'joint_torques': '/torques'}[last]
        return f'{prefix}joint_states', suffix, _joint_state
    if last in ('accelerometer', 'gyroscope', 'orientation') and space:
        return f'/{space}/data_raw', f'/{last}', _imu
    if last in ('command', 'requested_command'):
        return f'{prefix}{"applied_command" if last == "command" else "command"}', '', _command
    if last == 'wrench' and signal.columns == WRENCH:
        return f'/{signal.name}', '', _wrench
    if last == 'strain' and len(signal.columns) == 6:
        return f'/{signal.name}', '', _strain
    if last in ('saturated', 'temperature') and space.endswith('/strain'):
        return f'/{space}', f'/{last}', _strain
    return f'/{signal.name}', '', _array


def _group(window: Window) -> Iterator[tuple[str, Signal, Make]]:
    """Signals that share a topic and their stamps become one message each; a part with stamps of its own gets a topic of its own."""
    groups: dict[str, tuple[dict[str, Signal], Callable]] = {}
    for signal in window.signals.values():
        if len(signal):
            topic, suffix, maker = _topic(signal)
            groups.setdefault(topic, ({}, maker))[0][suffix] = signal
    for topic, (parts, maker) in groups.items():
        ordered = dict(sorted(parts.items(), key=lambda item: item[0] not in ('', '/accelerometer')))
        main = next(iter(ordered.values()))
        together = {
            k: s for k, s in ordered.items()
            if np.array_equal(s.stamps, main.stamps) and (maker is not _joint_state or s.columns == main.columns)
        }  # fmt: skip
        if maker is _strain and '' not in together:
            together, maker = {}, _array
        if together:
            yield topic, main, maker(together)
        for suffix, signal in ordered.items():
            if suffix not in together:
                yield f'/{signal.name}', signal, _array({'': signal})


def write_bag(path: str | Path, window: Window, *, compression: str = 'lz4') -> Path:
    """Write a window as a rosbag2 folder (MCAP) with metadata.yaml, and with truth.yaml where the truth is known.

    Signals with the names of the default table become standard messages (``encoders`` a JointState on ``/joint_states``), any
    other a Float64MultiArray whose label names the columns. `read_bag` gives the same window back.
    """
    topics = list(_group(window))
    if not topics:
        raise EstimationError('The window is empty: there is nothing to write.')
    noise = {s.name: list(s.noise) for s in window.signals.values() if s.noise}
    stamps = np.concatenate([s.stamps for _, s, _ in topics])
    which = np.concatenate([np.full(len(s), i) for i, (_, s, _) in enumerate(topics)])
    rows = np.concatenate([np.arange(len(s)) for _, s, _ in topics])
    with BagWriter(path, compression=compression, custom={f'{PACKAGE}.noise': json.dumps(noise)} if noise else None) as bag:
        for k in np.argsort(stamps, kind='stable'):
            topic, _, make = topics[which[k]]
            bag.write_message(topic, make(int(rows[k]), int(stamps[k])), int(stamps[k]))
    if window.truth:
        text = yaml.safe_dump({'parameters': {k: float(v) for k, v in window.truth.items()}}, sort_keys=False)
        (Path(path) / 'truth.yaml').write_text(text, encoding='utf-8')
    return Path(path)
