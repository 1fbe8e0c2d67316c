# SPDX-License-Identifier: Apache-2.0
"""A URDF with F/T sensors and IMUs as a MuJoCo model: links and inertias as they are, no meshes, feet that can stand on a floor."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from multibody_estimation.errors import EstimationError, did_you_mean

__all__ = ['ForceTorque', 'Frame', 'Robot', 'build_model', 'read_urdf']


@dataclass(frozen=True)
class Frame:
    """A place on a link."""

    link: str
    position: np.ndarray
    """In the link's frame, m; (3,)."""
    rotation: np.ndarray
    """Of the frame in the link's axes; (3, 3)."""


@dataclass(frozen=True)
class ForceTorque:
    """A six-axis sensor in a fixed joint."""

    name: str
    parent: str
    child: str
    on_child: bool
    """True: it reads the wrench that the parent exerts on the child; False: the child's on the parent (``child_to_parent``)."""
    position: np.ndarray
    """Origin of the sensor's frame in the child's, m; (3,)."""
    rotation: np.ndarray


@dataclass(frozen=True)
class Robot:
    """What is needed of a URDF."""

    text: str
    """The URDF without meshes, without links that have no mass, without what is for other simulators."""
    frames: Mapping[str, Frame]
    """Links without mass and IMUs, by name, on the links that have one."""
    sensors: tuple[ForceTorque, ...]
    feet: Mapping[str, tuple[np.ndarray, np.ndarray]]
    """Links with ``foot`` in their name and a collision box: its centre and size in m."""


def _pose(origin: Any) -> tuple[np.ndarray, np.ndarray]:
    def numbers(key: str) -> np.ndarray:
        return np.array([float(x) for x in (origin.get(key, '0 0 0') if origin is not None else '0 0 0').split()])

    (r, p, y), xyz = numbers('rpy'), numbers('xyz')
    (sr, cr), (sp, cp), (sy, cy) = ((np.sin(a), np.cos(a)) for a in (r, p, y))
    R = np.array([
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ])  # fmt: skip
    return xyz, R


def read_urdf(path: str | Path) -> Robot:
    """Take a URDF apart."""
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError) as error:
        raise EstimationError(f'{path} cannot be read as a URDF: {error}.') from error
    feet = {}
    for link in root.iter('link'):
        box = link.find('collision/geometry/box')
        if box is not None and 'foot' in link.get('name', ''):
            center, _ = _pose(link.find('collision/origin'))
            feet[link.get('name', '')] = (center, np.array([float(x) for x in box.get('size', '').split()]))
    joints = {j.get('name'): j for j in root.findall('joint')}
    above = {j.find('child').get('link'): j for j in joints.values()}  # type: ignore[union-attr]
    massive = {k.get('name') for k in root.findall('link') if k.find('inertial') is not None}

    def place(link: str, position: np.ndarray, rotation: np.ndarray) -> Frame:
        while link not in massive and link in above:
            p, R = _pose(above[link].find('origin'))
            link, position, rotation = above[link].find('parent').get('link'), p + R @ position, R @ rotation  # type: ignore[union-attr, assignment]
        return Frame(link, position, rotation)

    frames = {k.get('name', ''): place(k.get('name', ''), np.zeros(3), np.eye(3)) for k in root.findall('link')}
    sensors = []
    for sensor in root.findall('sensor'):
        name, kind, parent = sensor.get('name', ''), sensor.get('type'), sensor.find('parent')
        if parent is None:
            continue
        if kind in ('accelerometer', 'gyroscope'):
            frames.setdefault(name, place(parent.get('link', ''), *_pose(sensor.find('origin'))))
        elif kind == 'force_torque' and parent.get('joint') in joints:
            joint = joints[parent.get('joint')]
            ends = (joint.find('parent').get('link', ''), joint.find('child').get('link', ''))  # type: ignore[union-attr]
            where, origin = sensor.findtext('force_torque/frame', 'child'), sensor.find('origin')
            if where not in ('child', 'sensor'):
                raise EstimationError(
                    f"{path}: the F/T sensor {name} reads in the frame '{where}'; child and sensor are supported."
                )
            pose = _pose(origin if where == 'sensor' else None)
            on_child = sensor.findtext('force_torque/measure_direction') == 'parent_to_child'
            sensors.append(ForceTorque(name, *ends, on_child, *pose))
    _strip(root)
    return Robot(ET.tostring(root, encoding='unicode'), frames, tuple(sensors), feet)


def _strip(root: Any) -> None:
    for link in root.iter('link'):
        for child in [*link.findall('visual'), *link.findall('collision')]:
            link.remove(child)
    for child in [c for c in root if c.tag not in ('link', 'joint')]:
        root.remove(child)
    while True:
        parents = {j.find('parent').get('link') for j in root.findall('joint')}
        bare = {k.get('name') for k in root.findall('link') if k.find('inertial') is None and k.get('name') not in parents}
        if not bare:
            return
        for link in [k for k in root.findall('link') if k.get('name') in bare]:
            root.remove(link)
        for joint in [j for j in root.findall('joint') if j.find('child').get('link') in bare]:
            root.remove(joint)


def _quaternion(R: np.ndarray) -> np.ndarray:
    import mujoco

    q = np.zeros(4)
    mujoco.mju_mat2Quat(q, R.ravel())
    return q


def build_model(
    robot: Robot, *, imus: Iterable[str], standing: bool, step: float, stiffness: float, leg_stiffness: float, armature: float
) -> Any:
    """Compile a MuJoCo model with position servos on all joints, IMUs at the named frames and all F/T sensors.

    standing: the base floats and the feet stand on a floor; otherwise the base is held. step: s. stiffness: N m/rad.
    armature: rotor inertia seen at each joint, kg m^2; it acts on the motor's side of the joint, links do not feel it.
    """
    import mujoco

    spec = mujoco.MjSpec.from_string(robot.text)
    spec.compiler.fusestatic = False
    spec.option.timestep = step
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for joint in list(spec.joints):
        joint.armature = armature
        joint.limited = False
        k = leg_stiffness if any(part in joint.name for part in ('hip', 'knee', 'ankle', 'torso')) else stiffness
        servo = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        servo.set_to_position(kp=k, kv=k / 20)
    base = spec.worldbody.first_body()
    if standing:
        base.add_freejoint(name='base')
        spec.worldbody.add_geom(name='floor', type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1], friction=[1.0, 0.02, 0.001])
        for link, (center, size) in robot.feet.items():
            # The drawing's box is thin as paper: same outer face (+z of the link, downwards), but a thickness to stand on.
            half = np.array([size[0] / 2, size[1] / 2, 0.005])
            at = center + np.array([0, 0, size[2] / 2 - half[2]])
            spec.body(link).add_geom(name=f'{link}_box', type=mujoco.mjtGeom.mjGEOM_BOX, size=half, pos=at, mass=0.0,
                                     friction=[1.0, 0.02, 0.001])  # fmt: skip
    for name in imus:
        if name not in robot.frames:
            raise EstimationError(f"The robot has no IMU and no frame '{name}'.{did_you_mean(name, robot.frames)}")
        frame = robot.frames[name]
        site = spec.body(frame.link).add_site(name=f'imu/{name}', pos=frame.position, quat=_quaternion(frame.rotation))
        for what, kind in (('accelerometer', mujoco.mjtSensor.mjSENS_ACCELEROMETER), ('gyroscope', mujoco.mjtSensor.mjSENS_GYRO)):
            spec.add_sensor(name=f'{name}/{what}', type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=site.name)
    for sensor in robot.sensors:
        site = spec.body(sensor.child).add_site(name=f'ft/{sensor.name}', pos=sensor.position, quat=_quaternion(sensor.rotation))
        for what, kind in (('force', mujoco.mjtSensor.mjSENS_FORCE), ('torque', mujoco.mjtSensor.mjSENS_TORQUE)):
            spec.add_sensor(name=f'{sensor.name}/{what}', type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname=site.name)
    return spec.compile()
