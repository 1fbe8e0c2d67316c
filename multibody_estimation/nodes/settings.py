# SPDX-License-Identifier: Apache-2.0
"""Every parameter of every node, with meaning, unit, default and sane range: the nodes declare these, config/defaults.yaml shows them.

python -m multibody_estimation.nodes.settings > config/defaults.yaml
"""

from dataclasses import dataclass
from typing import Any

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['SETTINGS', 'Setting', 'check', 'defaults_yaml']


@dataclass(frozen=True)
class Setting:
    """One parameter of a node."""

    name: str
    default: Any
    meaning: str
    unit: str = ''
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


FOLDER = Setting(
    'data_folder',
    'data',
    'Folder below which files are written; services can write nowhere else. Relative to where the node was started.',
)
ROBOT = Setting(
    'robot',
    'furuta',
    'Robot that comes with the package (furuta, qube, cart_pole, double_pendulum), or the path of a robot file.',
)

SETTINGS: dict[str, tuple[Setting, ...]] = {
    'driver': (
        Setting('device', 'simulated', 'What the driver speaks to: simulated, serial, can, mujoco, simulated_strain, replay, or a device that another package adds.'),
        Setting('options', [''], 'Further options of the device as key=value, e.g. quantisation=0.003; a wrong one is answered with those there are.'),
        ROBOT,
        Setting('rate', 200.0, 'Samples per second, where the device lets the driver choose.', 'Hz', 1.0, 5000.0),
        Setting('port', '', 'Serial port or CAN channel, e.g. /dev/ttyACM0 or can0; empty where the device needs none.'),
        Setting('bag', '', 'Bag folder to play, for device: replay.'),
        Setting('speed', 1.0, 'Replay speed: 1 is the original timing, 0 as fast as possible.', 'times', 0.0, 1000.0),
        Setting('subscribers', 1, 'A replay begins when each of its topics has so many subscribers: nobody misses the first samples.', '', 0, 100),
        Setting('seed', 1, 'Seed of the simulated noise; the same seed gives the same noise.', '', 0, 2**31 - 1),
        Setting('noise', 0.002, 'Standard deviation of the encoder readings of the simulated device.', 'rad', 0.0, 1.0),
        Setting('dropped', 0.0, 'Share of samples that the simulated device loses.', 'fraction', 0.0, 0.9),
        Setting('command_timeout', 0.1, 'A command older than this is not executed any more: the motor gets zero torque.', 's', 0.001, 10.0),
        Setting('stall_timeout', 0.5, 'A device that gives no sample for so long is reported and opened again.', 's', 0.01, 60.0),
        Setting('excitation', '', 'Motion to play at start-up: sines, chirp or steps, the path of a trajectory file, or nothing. ~/excite plays it too.'),
        Setting('excitation_amplitude', 0.04, 'Largest command of the excitation, in the unit of the command.', 'N m or V', 0.0, 1000.0),
        Setting('excitation_seconds', 10.0, 'Length of the excitation, ramps included.', 's', 1.0, 3600.0),
        Setting('excitation_delay', 0.0, 'Time from start-up to the excitation, for others to get ready.', 's', 0.0, 3600.0),
        Setting('status_rate', 2.0, 'How often /diagnostics is published.', 'Hz', 0.1, 10.0),
        Setting('frame_id', '', 'Frame of the messages; empty takes the one that the device names.'),
    ),
    'recorder': (
        Setting('topics', ['joint_states', 'applied_command'], 'Topics to buffer, relative to the namespace of the node.'),
        Setting('buffer_seconds', 60.0, 'Length of the buffer; older samples are forgotten.', 's', 1.0, 3600.0),
        Setting('max_rate', 1000.0, 'Highest rate expected of one topic; with buffer_seconds it sets the memory taken at start-up.', 'Hz', 1.0, 20000.0),
        Setting('qos', 'auto', 'auto takes what the publisher offers; reliable and best_effort insist.', choices=('auto', 'reliable', 'best_effort')),
        Setting('status_rate', 1.0, 'How often ~/status and /diagnostics are published.', 'Hz', 0.1, 10.0),
        FOLDER,
    ),
    'estimator': (
        Setting('mode', 'identify', 'What is estimated.', choices=('identify', 'track', 'wrench', 'centroidal')),
        ROBOT,
        Setting('topics', ['joint_states', 'applied_command'], 'Topics to take, relative to the namespace of the node.'),
        Setting('signals', [''], 'Signals that are not called as usual, as name=topic, e.g. encoders=/arm/state.'),
        Setting('autostart', True, 'Configure and activate without being told; set to false where a lifecycle manager does it.'),
        Setting('buffer_seconds', 60.0, 'Length of the buffer; older samples are forgotten.', 's', 1.0, 3600.0),
        Setting('max_rate', 1000.0, 'Highest rate expected of one topic; with buffer_seconds it sets the memory taken at start-up.', 'Hz', 1.0, 20000.0),
        Setting('qos', 'auto', 'auto takes what the publisher offers; reliable and best_effort insist.', choices=('auto', 'reliable', 'best_effort')),
        Setting('identify_seconds', 10.0, 'Window length that the identification is compiled for; others are possible but compile first.', 's', 0.5, 3600.0),
        Setting('sample_rate', 200.0, 'Rate of the encoder samples, for compiling ahead.', 'Hz', 1.0, 5000.0),
        Setting('weight', 0.0, 'Allowed acceleration error of the model; 0 takes the choice of the robot.', 'rad/s^2', 0.0, 1e6),
        Setting('fit', '', 'Saved fit (YAML) whose parameters track starts with; empty takes the numbers of the robot.'),
        Setting('track_seconds', 0.5, 'Length of the moving window in mode track.', 's', 0.05, 60.0),
        Setting('track_rate', 20.0, 'Estimates per second in mode track, wrench and centroidal.', 'Hz', 0.1, 1000.0),
        Setting('urdf', '', 'Robot of mode wrench: path of a URDF, or icub-models:<robot> for one of the package icub-models.'),
        Setting('truth_topic', '', 'LinkWrenches of a simulation; mode wrench says how far it is off. Empty: none.'),
        Setting('setup', '', 'File (YAML) that describes sensors and covariances for the modes wrench and centroidal.'),
        Setting('report', True, 'Write the HTML report after each identification.'),
        Setting('status_rate', 1.0, 'How often /diagnostics is published.', 'Hz', 0.1, 10.0),
        FOLDER,
    ),
    'calibrator': (
        Setting('sensor', 'sensor', 'Name of the force/torque sensor; its topics are ft/<sensor>/strain, /wrench and /wrench_compensated.'),
        Setting('imu_topic', 'imu/data_raw', 'IMU that is fixed to the body behind the sensor.'),
        Setting('imu_rotation', [0.0, 0.0, 0.0, 1.0], 'Quaternion x, y, z, w that turns vectors of the IMU frame into the sensor frame.'),
        Setting('sample_seconds', 1.0, 'How long a static sample is averaged.', 's', 0.05, 60.0),
        Setting('buffer_seconds', 10.0, 'Length of the buffer that samples are taken from.', 's', 1.0, 600.0),
        Setting('calibration_file', '', 'Calibration to start with, below data_folder; empty takes the newest there of this serial number.'),
        Setting('resume', False, 'Take up the samples of the last session with this sensor; only where nothing was mounted anew since.'),
        Setting('factory_matrix', [0.0], 'Matrix the sensor came with, 36 numbers row by row, N and N m per count; shows swapped channels. One 0: none.'),
        Setting('max_angular_rate', 0.05, 'A body that turns faster than this is not at rest.', 'rad/s', 1e-4, 10.0),
        Setting('max_norm_error', 0.5, 'A mean acceleration that differs from 9.81 m/s^2 by more than this is not rest.', 'm/s^2', 1e-3, 10.0),
        Setting('max_acceleration_std_dev', 0.3, 'An accelerometer that scatters more than this is not at rest.', 'm/s^2', 1e-4, 10.0),
        Setting('max_strain_std_dev', 60.0, 'A strain channel that scatters more than this is not at rest.', 'counts', 0.01, 30000.0),
        Setting('saturation', 32767.0, 'Counts at which a channel stands at the end of its range.', 'counts', 1.0, 1e9),
        Setting('qos', 'auto', 'auto takes what the publisher offers; reliable and best_effort insist.', choices=('auto', 'reliable', 'best_effort')),
        Setting('status_rate', 1.0, 'How often /diagnostics is published.', 'Hz', 0.1, 10.0),
        FOLDER,
    ),
}  # fmt: skip
"""Parameters by node."""


def check(node: str, values: dict[str, Any], where: str = '') -> None:
    """Refuse a parameter that the node does not have, or a value out of its range; the sentence names the remedy."""
    known = {s.name: s for s in SETTINGS[node]}
    head = f'{where}: ' if where else ''
    for name, value in values.items():
        if name in ('use_sim_time',) or name.startswith('qos_overrides') or name == 'start_type_description_service':
            continue
        if name not in known:
            raise EstimationError(f"{head}'{name}' is no parameter of the {node}.{did_you_mean(name, known)}")
        s = known[name]
        if s.choices and value not in s.choices:
            raise EstimationError(f"{head}{name} is '{value}'; it can be {', '.join(s.choices)}.")
        if s.low is not None and s.high is not None and not s.low <= float(value) <= s.high:
            raise EstimationError(f'{head}{name} is {value} {s.unit}; it must lie between {s.low:g} and {s.high:g}.')


def defaults_yaml() -> str:
    """All parameters as a commented ROS 2 parameter file."""
    import textwrap

    import yaml

    lines = [
        '# SPDX-License-Identifier: Apache-2.0',
        '# Every parameter of every node with its default. Copy what you change into a file of your own and pass it as params_file:=...',
        '# This file is made from the tables in nodes/settings.py.',
    ]
    for node, settings in SETTINGS.items():
        if not settings:
            continue
        lines += ['', f'{node}:', '  ros__parameters:']
        for s in settings:
            span = f' From {s.low:g} to {s.high:g}.' if s.low is not None and s.high is not None else ''
            span += f' One of {", ".join(s.choices)}.' if s.choices else ''
            unit = f' [{s.unit}]' if s.unit else ''
            lines += [f'    # {row}' for row in textwrap.wrap(f'{s.meaning}{unit}{span}', 118)]
            lines.append(f'    {s.name}: {yaml.safe_dump(s.default, default_flow_style=True).splitlines()[0]}')
    return '\n'.join(lines) + '\n'


if __name__ == '__main__':
    print(defaults_yaml(), end='')
