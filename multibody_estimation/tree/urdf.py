# SPDX-License-Identifier: Apache-2.0
"""A model from a URDF: yourdfpy reads the values, the standard library's parser gives the lines for the errors."""

import io
import os
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from multibody_estimation.errors import EstimationError
from multibody_estimation.geometry.spatial import rpy_from_rotation
from multibody_estimation.tree.build import Joint, Link, Sensor, build
from multibody_estimation.tree.model import Model

__all__ = ['load_urdf']

NUMBERS = {'xyz', 'rpy', 'value', 'ixx', 'ixy', 'ixz', 'iyy', 'iyz', 'izz', 'damping', 'friction', 'lower', 'upper', 'effort', 'velocity'}  # fmt: skip
REQUIRED = {'mass': ('value',), 'inertia': ('ixx', 'iyy', 'izz')}
NUMERIC = {'origin', 'axis', 'mass', 'inertia', 'dynamics', 'limit'}
SENSORS = {'force_torque': 'force_torque', 'imu': 'imu', 'accelerometer': 'accelerometer', 'gyroscope': 'gyroscope'}


def load_urdf(
    urdf: str | os.PathLike,
    base: str | None = None,
    floating: bool = False,
    joints: list[str] | tuple[str, ...] | None = None,
    **options: Any,
) -> Model:
    """Read a model from a path or from the text of a URDF; meshes are not needed.

    ``base`` holds the tree by another link than the root; ``joints`` names the moving joints in the order of the position
    vector, and locks those it leaves out at zero; ``options`` go to `build` (gravity, friction_law...).
    """
    import yourdfpy  # slow to import (meshes, scenes): only those who read a URDF wait for it

    text = str(urdf)
    path = 'URDF text'
    if not text.lstrip().startswith('<'):
        path = str(urdf)
        if not Path(path).is_file():
            raise EstimationError(f"There is no URDF file '{path}'.")
        text = Path(path).read_text()
    lines, found = _scan(text, path)

    def say(kind: str, name: str) -> str:
        line = lines.get((kind, name))
        return f"{path} line {line}: {kind} '{name}'" if line else f"{path}: {kind} '{name}'"

    try:
        robot = yourdfpy.URDF.load(
            io.BytesIO(text.encode()), build_scene_graph=False, load_meshes=False, build_collision_scene_graph=False,
            load_collision_meshes=False,
        ).robot  # fmt: skip
    except Exception as error:  # whatever a broken file makes of the parser is a fact about the file
        raise EstimationError(f'{path} cannot be read as a URDF ({type(error).__name__}: {error}).') from None
    parts = []
    for j in robot.joints:
        if j.mimic is not None and (joints is None or j.name in joints):
            raise EstimationError(
                f"{say('joint', j.name)} mimics joint '{j.mimic.joint}', which joint coordinates cannot follow. Make it fixed, "
                'remove <mimic>, or name the moving joints without it: it is then locked at zero.'
            )
        xyz, rpy = _pose(j.origin)
        extra: dict[str, float] = {}
        if j.dynamics is not None:
            extra |= {'damping': float(j.dynamics.damping or 0), 'coulomb': float(j.dynamics.friction or 0)}
        if j.limit is not None:
            kinds = {'velocity_limit': j.limit.velocity, 'effort_limit': j.limit.effort}
            if j.type != 'continuous':
                kinds |= {'lower': j.limit.lower or 0.0, 'upper': j.limit.upper or 0.0}
            extra |= {k: float(x) for k, x in kinds.items() if x is not None}
        axis = (1.0, 0.0, 0.0) if j.axis is None else tuple(j.axis)
        parts.append(Joint(j.name, j.parent, j.child, j.type, axis, xyz, rpy, **extra))
    links = [_link(x, say) for x in robot.links]
    moved = {j.child: j.name for j in parts if j.type != 'fixed' and (joints is None or j.name in joints)}
    for x in robot.links:
        carried = [j.child for j in parts if j.parent == x.name]
        if x.name in moved and x.inertial is None and not carried:
            raise EstimationError(
                f"{say('link', x.name)} has no <inertial>, yet joint '{moved[x.name]}' moves it. Add its mass and inertia."
            )
    sensors = [_sensor(s, {j.name: j for j in parts}) for s in found]
    return build(
        links, parts, sensors, name=robot.name or 'robot', base=base, floating=floating, order=joints, say=say, **options
    )


def _link(x: Any, say: Any) -> Link:
    if x.inertial is None:
        return Link(x.name)
    if x.inertial.mass is None or x.inertial.inertia is None:
        missing = 'mass' if x.inertial.mass is None else 'inertia'
        raise EstimationError(f'{say("link", x.name)}: its <inertial> has no <{missing}>.')
    pose = np.eye(4) if x.inertial.origin is None else x.inertial.origin
    R = pose[:3, :3]
    inertia = R @ x.inertial.inertia @ R.T
    return Link(x.name, float(x.inertial.mass), tuple(pose[:3, 3]), 0.5 * (inertia + inertia.T))


def _pose(origin: Any) -> tuple[tuple, tuple]:
    if origin is None:
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    return tuple(float(x) for x in origin[:3, 3]), rpy_from_rotation(origin[:3, :3])


def _scan(text: str, path: str) -> tuple[dict[tuple[str, str], int], list[dict]]:
    """Lines of links, joints and sensors, and the sensors themselves (yourdfpy does not read those)."""
    lines: dict[tuple[str, str], int] = {}
    found: dict[str, dict] = {}
    stack: list[tuple[str, dict]] = []
    ends: dict[str, set] = {}
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict) -> None:
        line = parser.CurrentLineNumber
        outer = stack[-1] if stack else ('', {})
        if tag in ('link', 'joint', 'sensor') and outer[0] == 'robot' and 'name' in attributes:
            if (tag, attributes['name']) in lines:
                raise EstimationError(
                    f"{path} line {line}: there is already a {tag} '{attributes['name']}'; names must be unique."
                )
            lines[tag, attributes['name']] = line
        inside = [t for t, _ in stack]
        if tag in NUMERIC and inside[:1] == ['robot'] and len(inside) > 1 and inside[1] in ('link', 'joint'):
            element = f"{inside[1]} '{stack[1][1].get('name')}'"
            for key in REQUIRED.get(tag, ()):
                if key not in attributes:
                    raise EstimationError(f'{path} line {line}: <{tag}> of {element} has no {key}; it is needed.')
            for key in NUMBERS & set(attributes):
                _numbers(
                    attributes[key],
                    f'{path} line {line}: <{tag} {key}="{attributes[key]}"> of {element}',
                    3 if key in ('xyz', 'rpy') else 1,
                )
        if outer[0] == 'sensor' and len(inside) == 2:
            sensor = found.setdefault(stack[1][1].get('name', ''), dict(stack[1][1]))
            if tag == 'parent':
                sensor['on'] = attributes.get('joint') or attributes.get('link')
            elif tag == 'origin':
                sensor['xyz'] = tuple(_numbers(attributes.get('xyz', '0 0 0'), f'{path} line {line}'))
                sensor['rpy'] = tuple(_numbers(attributes.get('rpy', '0 0 0'), f'{path} line {line}'))
        stack.append((tag, attributes))

    def end(tag: str) -> None:
        _, attributes = stack.pop()
        if len(stack) == 2 and stack[1][0] == 'joint' and tag in ('parent', 'child') and 'link' in attributes:
            ends.setdefault(stack[1][1].get('name', ''), set()).add(tag)
        if len(stack) == 1 and tag == 'joint':
            name = attributes.get('name', '')
            for missing in sorted({'parent', 'child'} - ends.get(name, set())):
                raise EstimationError(
                    f"{path} line {lines.get(('joint', name))}: joint '{name}' has no <{missing} link=...>; it is needed."
                )

    def text_of(words: str) -> None:
        if len(stack) == 4 and stack[1][0] == 'sensor' and stack[3][0] in ('frame', 'measure_direction') and words.strip():
            found.setdefault(stack[1][1].get('name', ''), dict(stack[1][1]))[stack[3][0]] = words.strip()

    parser.buffer_text = True
    parser.CharacterDataHandler = text_of
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise EstimationError(f'{path} line {error.lineno} is not valid XML: {expat.errors.messages[error.code]}.') from None
    return lines, [s for s in found.values() if s.get('type') in SENSORS and s.get('on')]


def _sensor(found: dict, joints: dict[str, Joint]) -> Sensor:
    """A sensor of the URDF; that of a force/torque sensor measures on the parent unless it says parent_to_child (SDFormat's default)."""
    zero = (0.0, 0.0, 0.0)
    xyz, rpy, joint = found.get('xyz', zero), found.get('rpy', zero), joints.get(found['on'])
    if found['type'] != 'force_torque' or joint is None:  # `build` says what is wrong with an unknown joint
        return Sensor(found['name'], SENSORS[found['type']], found['on'], xyz, rpy)
    link, frame = joint.child, found.get('frame', 'child')
    if frame == 'child':
        xyz = rpy = zero
    elif frame == 'parent':
        link, xyz, rpy = joint.parent, zero, zero
    acts_on = joint.child if found.get('measure_direction') == 'parent_to_child' else joint.parent
    return Sensor(found['name'], 'force_torque', found['on'], xyz, rpy, link=link, acts_on=acts_on)


def _numbers(text: str, where: str, count: int = 3) -> list[float]:
    try:
        numbers = [float(x) for x in text.split()]
    except ValueError:
        raise EstimationError(f'{where} is not a number.') from None
    if not np.isfinite(numbers).all():
        raise EstimationError(f'{where} must be finite.')
    if len(numbers) != count:
        raise EstimationError(f'{where} has {len(numbers)}; {count} number{"s are" if count > 1 else " is"} needed.')
    return numbers
