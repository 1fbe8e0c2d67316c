# SPDX-License-Identifier: Apache-2.0
"""The robot file: what the URDF cannot say, in a few lines of YAML that serve every verb, node and launch file.

    urdf: my_robot.urdf                       # beside this file, or icub-models:<robot>
    inputs:   {command: {topic: /motor/command, joint: shoulder, kind: torque, delay: 4 ms}}
    sensors:  {encoders: {topic: /joint_states, joints: [shoulder, elbow], noise: 0.0015}}
    joints:   {shoulder: {coulomb: 0.05}}     # numbers that the URDF lacks
    estimate:
      shoulder.damping:      {start: 0.01, lower: 0, upper: 1}
      forearm.mass:          {}               # start and bounds from the URDF
      forearm.center_of_mass: {axes: [z]}
      forearm.inertial:      {}               # all ten numbers, possible by construction
    fix: [forearm.mass]
    settings: {weight: 0.1, step: 5 ms}

Parameters are dotted names made of the URDF's own link and joint names.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation import tree
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.binding import with_values
from multibody_estimation.identification.inertia import NAMES as INERTIA
from multibody_estimation.identification.inertia import log_cholesky
from multibody_estimation.identification.observations import (
    Accelerometer,
    Encoder,
    ForceTorque,
    Gyroscope,
    Input,
    JointTorque,
    Observation,
    Position,
)
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.robot import Robot
from multibody_estimation.schema import Checked, Flag, Number, Numbers, Quantity, Text, read_yaml

__all__ = ['RobotFile', 'load_robot', 'read_robot_file']

TYPES: dict[str, Any] = {
    'encoder': Encoder, 'gyroscope': Gyroscope, 'accelerometer': Accelerometer, 'force_torque': ForceTorque, 'joint_torque': JointTorque,
    'position': Position,
}  # fmt: skip
JOINT_NUMBERS = {
    'armature': Number, 'damping': Number, 'coulomb': Number, 'stribeck': Number, 'stribeck_velocity': Number, 'friction_velocity': Number,
    'stiffness': Number, 'spring_rest': Quantity('rad|m'),
}  # fmt: skip
SCHEMA: dict = {
    'name': Text,
    'urdf': Text,
    'base': Text,
    'order': [Text],
    'gravity': Numbers,
    'inputs': {
        None: {
            'topic': Text, 'joint': Text, 'joints': [Text], 'kind': ('torque', 'voltage'), 'delay': Quantity('s'), 'gain': Number,
            'back_emf': Number, 'offset': Number, 'noise': Quantity('N m|N|V', many=True),
        }
    },
    'sensors': {
        None: {
            'type': tuple(TYPES), 'topic': Text, 'joints': [Text], 'link': Text, 'noise': Quantity('rad|m|rad/s|m/s^2|N|N m', many=True),
            'delay': Quantity('s'), 'quantisation': Quantity('rad|m'), 'wrap': Flag, 'offset': Quantity('rad|m', many=True), 'bias': Numbers,
            'position': Numbers, 'rpy': Numbers, 'huber': Number,
        }
    },
    'joints': {None: JOINT_NUMBERS},
    'estimate': {
        None: {
            'start': Number, 'lower': Number, 'upper': Number, 'prior': Numbers, 'transform': ('none', 'log'), 'label': Text, 'unit': Text,
            'scale': Number, 'axes': [('x', 'y', 'z')],
        }
    },
    'fix': [Text],
    'settings': {'weight': Number, 'step': Quantity('s')},
}  # fmt: skip
USUAL = {'encoders': 'encoder', 'joint_torques': 'joint_torque'}
"""Types of sensors that need none, by name; ``.../gyroscope``, ``.../accelerometer`` and ``.../wrench`` say theirs too."""
GROUPS = {'center_of_mass': 'xyz', 'placement': 'xyz'}


@dataclass(frozen=True)
class RobotFile:
    """A robot with the topics its signals come on."""

    robot: Robot
    topics: dict[str, str]
    """Signal name to topic, where the file names one."""
    urdf: Path
    path: Path


def load_robot(path: str | Path) -> Robot:
    """Read a robot file; see the module's text for its form."""
    return read_robot_file(path).robot


def read_robot_file(path: str | Path) -> RobotFile:
    """Read a robot file with the topics it names."""
    file = read_yaml(path, SCHEMA)
    given = file.values
    for key in ('urdf', 'sensors'):
        if not given.get(key):
            raise file.complain(f"'{key}' is missing; a robot needs it.")
    try:
        urdf = tree.find_urdf(given['urdf'], file.path.parent)
    except EstimationError as error:
        raise file.complain(str(error), 'urdf') from None
    options = {'gravity': given['gravity']} if 'gravity' in given else {}
    model = tree.load_urdf(urdf, base=given.get('base'), joints=given.get('order'), **options)
    for joint, numbers in given.get('joints', {}).items():
        if joint not in model.joint_names:
            raise file.complain(f"the robot has no joint '{joint}'.{did_you_mean(joint, model.joint_names)}", 'joints', joint)
        for name, value in numbers.items():
            model = tree.set_leaf(model, f'{joint}.{name}', value)
    inputs = tuple(i for name, entry in given.get('inputs', {}).items() for i in _inputs(file, model, name, entry))
    sensors = tuple(_sensor(file, model, name, entry) for name, entry in given['sensors'].items())
    robot = Robot(given.get('name', model.name), model, inputs, sensors, (), given.get('settings', {}))
    parameters = tuple(p for name, entry in given.get('estimate', {}).items() for p in _parameters(file, robot, name, entry))
    names = [p.name for p in parameters]
    for name in given.get('fix', []):
        if name not in names:
            raise file.complain(f"'{name}' cannot be fixed: it is not under estimate.{did_you_mean(name, names)}", 'fix')
    parameters = tuple(replace(p, fixed=p.name in given.get('fix', [])) for p in parameters)
    robot = replace(robot, parameters=parameters)
    starts = {p.name: p.start for p in parameters if p.start is not None and 'start' in given['estimate'].get(p.name, {})}
    robot = with_values(robot, starts) if starts else robot
    topics = {n: e['topic'] for section in ('inputs', 'sensors') for n, e in given.get(section, {}).items() if 'topic' in e}
    return RobotFile(robot, topics, urdf, file.path)


def _inputs(file: Checked, model: tree.Model, name: str, entry: dict) -> Iterator[Input]:
    joints = entry.get('joints') or ([entry['joint']] if 'joint' in entry else [])
    if not joints:
        raise file.complain(f"say which joint '{name}' drives: joint: shoulder.", 'inputs', name)
    for joint in joints:
        if joint not in model.joint_names:
            raise file.complain(f"the robot has no joint '{joint}'.{did_you_mean(joint, model.joint_names)}", 'inputs', name)
        numbers = {k: v for k, v in entry.items() if k in ('kind', 'delay', 'gain', 'back_emf', 'offset', 'noise')}
        if isinstance(numbers.get('noise'), list):
            if len(numbers['noise']) != len(joints):
                raise file.complain(f'{len(numbers["noise"])} numbers for the noise of {len(joints)} joints.', 'inputs', name)
            numbers['noise'] = numbers['noise'][joints.index(joint)]
        yield Input(name, joint, **numbers)


def _sensor(file: Checked, model: tree.Model, name: str, entry: dict) -> Observation:
    kind = (
        entry.get('type')
        or USUAL.get(name)
        or {'gyroscope': 'gyroscope', 'accelerometer': 'accelerometer', 'wrench': 'force_torque'}.get(name.split('/')[-1], '')
    )
    if not kind:
        raise file.complain(f"say of which type '{name}' is: one of {', '.join(TYPES)}.", 'sensors', name)
    for joint in entry.get('joints', []):
        if joint not in model.joint_names:
            raise file.complain(f"the robot has no joint '{joint}'.{did_you_mean(joint, model.joint_names)}", 'sensors', name)
    if 'link' in entry and entry['link'] not in model.link_names:
        raise file.complain(
            f"the robot has no link '{entry['link']}'.{did_you_mean(entry['link'], model.link_names)}", 'sensors', name
        )
    known = {f.name for f in fields(TYPES[kind])}
    numbers: dict[str, Any] = {}
    for key, value in entry.items():
        if key in ('type', 'topic'):
            continue
        if key not in known:
            raise file.complain(f"a sensor of type {kind} has no '{key}'.{did_you_mean(key, known)}", 'sensors', name, key)
        numbers[key] = tuple(value) if isinstance(value, list) else value
    if kind == 'encoder':
        numbers.setdefault('joints', model.joint_names)
        numbers.setdefault('wrap', all(model.joint_types[model.joint_index(j)] == 'revolute' for j in numbers['joints']))
        if isinstance(numbers.get('offset'), float):
            numbers['offset'] = (numbers['offset'],) * len(numbers['joints'])
    try:
        return TYPES[kind](signal=name, **numbers)
    except EstimationError as error:
        raise file.complain(str(error), 'sensors', name) from None


def _parameters(file: Checked, robot: Robot, name: str, entry: dict) -> Iterator[Parameter]:
    model = robot.model
    head, _, tail = name.rpartition('.')
    numbers = {k: v for k, v in entry.items() if k not in ('axes', 'prior')}
    if 'prior' in entry:
        numbers['prior'] = tuple(entry['prior'])
    if tail == 'inertial' and head in model.link_names:
        if set(entry) - {'prior'}:
            raise file.complain(f"'{name}' stands for ten numbers; only a prior can be given.", 'estimate', name)
        own = log_cholesky(model, head)
        yield from (Parameter(f'{head}.log_cholesky.{n}', own[f'{head}.log_cholesky.{n}'], scale=0.3) for n in INERTIA)
        return
    if tail in GROUPS and f'{name}.x' in dynamics.number_names(model):
        if set(entry) - {'axes'}:
            raise file.complain(
                f"'{name}' stands for several numbers: give start and bounds per axis, e.g. {name}.z.", 'estimate', name
            )
        for axis in entry.get('axes', list(GROUPS[tail])):
            yield _parameter(file, robot, f'{name}.{axis}', {})
        return
    if 'axes' in entry:
        raise file.complain(f"'{name}' has no axes.", 'estimate', name, 'axes')
    yield _parameter(file, robot, name, numbers)


def _parameter(file: Checked, robot: Robot, name: str, numbers: dict) -> Parameter:
    from multibody_estimation.identification.binding import known_names

    known = known_names(robot)
    key = name if name in file.values['estimate'] else name.rpartition('.')[0]
    if name not in known:
        raise file.complain(f"'{name}' is no parameter of this robot.{did_you_mean(name, known)}", 'estimate', key)
    unit, lower = _usual(robot.model, name)
    try:
        made = Parameter(name, **({'unit': unit, 'lower': lower} | numbers))
        if made.start is None and name in dynamics.number_names(robot.model):
            own = dynamics.get_number(robot.model, name)
            size = _size(robot.model, name, own)
            # Friction that starts at its bound of zero stays there: its slope is not seen.
            own = own or (0.1 * size if made.lower == 0.0 else 0.0)
            made = replace(made, start=float(np.clip(own, made.lower, made.upper)), scale=made.scale or size)
        return made
    except EstimationError as error:
        raise file.complain(str(error), 'estimate', key) from None


def _usual(model: tree.Model, name: str) -> tuple[str, float]:
    """Unit and lower bound of a number."""
    head, _, tail = name.partition('.')
    slider = head in model.joint_names and model.joint_types[model.joint_index(head)] == 'prismatic'
    table = {
        'mass': ('kg', 1e-6), 'armature': ('kg' if slider else 'kg m^2', 0.0), 'damping': ('N s/m' if slider else 'N m s/rad', 0.0),
        'coulomb': ('N' if slider else 'N m', 0.0), 'stribeck': ('N' if slider else 'N m', 0.0), 'stiffness': ('N/m' if slider else 'N m/rad', -np.inf),
        'spring_rest': ('m' if slider else 'rad', -np.inf),
    }  # fmt: skip
    if tail in table:
        return table[tail]
    if tail.startswith('inertia.'):
        return 'kg m^2', 1e-9 if tail[-1] == tail[-2] else -np.inf
    if tail.startswith(('center_of_mass', 'placement')):
        return ('rad' if tail.endswith(('roll', 'pitch', 'yaw')) else 'm'), -np.inf
    if name.startswith('gravity.tilt'):
        return 'rad', -np.inf
    return '', 0.0 if tail == 'delay' else -np.inf


def _size(model: tree.Model, name: str, own: float) -> float:
    """A typical change of a number whose own value may be zero."""
    if own:
        return abs(own)
    tail = name.partition('.')[2]
    if tail.startswith(('center_of_mass', 'placement', 'tilt', 'spring_rest')):
        return 0.02
    return 0.01
