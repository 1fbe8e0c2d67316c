# SPDX-License-Identifier: Apache-2.0
"""A `WrenchSetup` as a YAML file: read with a schema whose errors name the file, the line and the key; written with what was learned."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.tree.model import Model
from multibody_estimation.wrench.settings import SENSORS, Prior, SubMass, WrenchSensor, WrenchSetup

__all__ = ['joint_sensors', 'load_wrench', 'load_wrench_setup', 'model_sensors', 'save_wrench_setup', 'setup_from_dict']

TOP = ('urdf', 'base', 'floating', 'gravity', 'contacts', 'contact_free', 'equation_noise', 'motion_noise', 'joint_acceleration', 'acceleration',
       'joint_wrench', 'positions', 'velocities', 'base_velocity', 'smoothing', 'joint_noise', 'sensors', 'model_sensors', 'joint_sensors')  # fmt: skip
SENSOR = ('type', 'on', 'noise', 'covariance', 'position', 'rpy', 'offset', 'gate', 'normal', 'sub_mass', 'frame_link', 'acts_on', 'share',
          'signal')  # fmt: skip
PRIOR = ('std', 'covariance', 'mean')


def model_sensors(
    model: Model, noise: Mapping[str, Any], gate: float | None = None, signal: str = ''
) -> tuple[WrenchSensor, ...]:
    """Sensors that the URDF holds, of the types that ``noise`` names with their standard deviations (or covariance).

    An ``imu`` of the model is an accelerometer ``<name>_acc`` and a gyroscope ``<name>_gyr``. ``signal`` names the signal of each in a
    recording, with ``{}`` for the sensor's name in the model, e.g. ``ft/{}/wrench``.
    """
    s, out = model.structure, []
    known = ('force_torque', 'accelerometer', 'gyroscope')
    for kind in noise:
        if kind not in known:
            raise EstimationError(f"A model has no sensors of type '{kind}'.{did_you_mean(kind, known)}")
    for i, (name, kind) in enumerate(zip(s.sensor_names, s.sensor_types)):
        pose: dict[str, Any] = {
            'position': tuple(float(x) for x in model.sensor_position[i]),
            'rpy': tuple(float(x) for x in model.sensor_rpy[i]),
        }
        link = s.link_names[s.sensor_links[i]]
        if kind == 'force_torque' and kind in noise:
            acts = s.link_names[s.sensor_acts_on[i]]
            out.append(
                WrenchSensor(
                    name,
                    kind,
                    s.sensor_joints[i],
                    noise[kind],
                    **pose,
                    frame_link=link,
                    acts_on=acts,
                    gate=gate,
                    share=kind,
                    signal=signal.replace('{}', name),
                )
            )
        for part, end in (('accelerometer', '_acc'), ('gyroscope', '_gyr')):
            if part in noise and kind in (part, 'imu'):
                out.append(
                    WrenchSensor(
                        name + (end if kind == 'imu' else ''),
                        part,
                        link,
                        noise[part],
                        **pose,
                        gate=gate,
                        share=part,
                        signal=signal.replace('{}', name),
                    )
                )
    return tuple(out)


def joint_sensors(model: Model, type: str, noise: float, signal: str = '') -> tuple[WrenchSensor, ...]:
    """One ``joint_acceleration`` or ``joint_torque`` sensor per moving joint, named ``<type>/<joint>``."""
    return tuple(WrenchSensor(f'{type}/{joint}', type, joint, noise, share=type, signal=signal) for joint in model.joint_names)


class _Loader(yaml.SafeLoader):
    """YAML in which only true and false are truth values: ``on`` is a key here, not a yes."""

    @classmethod
    def read(cls, text: str) -> Any:
        loader = cls(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != 'tag:yaml.org,2002:bool']
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver('tag:yaml.org,2002:bool', re.compile('^(?:true|false)$'), list('tf'))


class _Lines:
    """Where a key stands in a file, for the errors."""

    def __init__(self, text: str, path: str) -> None:
        self.path, self.marks = path, {}  # type: str, dict[tuple[str, ...], int]
        node = yaml.compose(text, Loader=yaml.SafeLoader) if text else None
        self._walk(node, ())

    def _walk(self, node: Any, at: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, item in node.value:
                self.marks[(*at, str(key.value))] = key.start_mark.line + 1
                self._walk(item, (*at, str(key.value)))

    def say(self, *at: str) -> str:
        line = self.marks.get(at)
        return f'{self.path} line {line}: ' if line else f'{self.path}: '


def load_wrench_setup(path: str | Path, model: Model | None = None) -> WrenchSetup:
    """Read a setup; ``model`` is needed where the file takes sensors from the model or for every joint."""
    try:
        text = Path(path).read_text(encoding='utf-8')
    except OSError as error:
        raise EstimationError(f'{path}: cannot be read ({error.strerror}).') from None
    try:
        content, lines = _Loader.read(text), _Lines(text, str(path))
    except yaml.YAMLError as error:
        raise EstimationError(f'{path} is not valid YAML: {str(error).splitlines()[0]}.') from None
    return setup_from_dict(content, model, lines)


def load_wrench(path: str | Path) -> tuple[Model, WrenchSetup]:
    """Read a setup together with the robot that its key ``urdf`` names: a path beside the file, or ``icub-models:<robot>``."""
    from multibody_estimation.tree import load_urdf

    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding='utf-8'))
    except OSError as error:
        raise EstimationError(f'{path}: cannot be read ({error.strerror}).') from None
    except yaml.YAMLError as error:
        raise EstimationError(f'{path} is not valid YAML: {str(error).splitlines()[0]}.') from None
    name = content.get('urdf') if isinstance(content, Mapping) else None
    if not name:
        raise EstimationError(f'{path} names no robot: add urdf: my_robot.urdf, or urdf: icub-models:iCubGazeboV2_7.')
    file = path.parent / str(name)
    if str(name).startswith('icub-models:'):
        try:
            import icub_models
        except ModuleNotFoundError:
            raise EstimationError(f'{path}: {name} needs the package icub-models: pip install icub-models.') from None
        robot, known = str(name).removeprefix('icub-models:'), sorted(icub_models.get_robot_names())
        if robot not in known:
            raise EstimationError(f"{path}: icub-models has no robot '{robot}'.{did_you_mean(robot, known)}")
        file = Path(icub_models.get_model_file(robot))
    floating = content.get('floating')
    model = load_urdf(file, floating=True if floating is None else bool(floating))
    return model, load_wrench_setup(path, model)


def setup_from_dict(content: Any, model: Model | None = None, lines: '_Lines | None' = None) -> WrenchSetup:
    """Build a setup from plain data, as a file or a node's parameters hold it."""
    lines = lines or _Lines('', 'wrench setup')
    if not isinstance(content, Mapping):
        raise EstimationError(f'{lines.path}: a mapping with the key sensors is needed.')
    _known(content, TOP, lines)
    sensors: list[WrenchSensor] = []
    for key in ('model_sensors', 'joint_sensors'):
        if key in content and model is None:
            raise EstimationError(f'{lines.say(key)}{key} needs the robot: give model=.')
    for kind, x in _mapping(content.get('model_sensors'), lines, 'model_sensors').items():
        x = _mapping(x, lines, 'model_sensors', kind)
        _known(x, ('noise', 'covariance', 'gate', 'signal'), lines, 'model_sensors', kind)
        sensors += model_sensors(model, {kind: _noise(x, lines, 'model_sensors', kind)}, x.get('gate'), str(x.get('signal', '')))  # type: ignore[arg-type]
    for kind, x in _mapping(content.get('joint_sensors'), lines, 'joint_sensors').items():
        x = _mapping(x, lines, 'joint_sensors', kind)
        _known(x, ('noise', 'signal'), lines, 'joint_sensors', kind)
        if kind not in ('joint_acceleration', 'joint_torque'):
            raise EstimationError(
                f"{lines.say('joint_sensors', kind)}'{kind}' is no sensor of joints.{did_you_mean(kind, ['joint_acceleration', 'joint_torque'])}"
            )
        sensors += joint_sensors(model, kind, _noise(x, lines, 'joint_sensors', kind), str(x.get('signal', '')))  # type: ignore[arg-type]
    named = {s.name: i for i, s in enumerate(sensors)}
    for name, x in _mapping(content.get('sensors'), lines, 'sensors').items():
        sensor = _sensor(str(name), _mapping(x, lines, 'sensors', str(name)), lines)
        if sensor.name in named:  # one sensor of the model given anew
            sensors[named[sensor.name]] = sensor
        else:
            sensors.append(sensor)
    more: dict[str, Any] = {}
    for key in ('base', 'positions', 'velocities', 'base_velocity'):
        if key in content:
            more[key] = str(content[key])
    for key in ('gravity', 'joint_noise'):
        if content.get(key) is not None:
            more[key] = tuple(np.atleast_1d(_numbers(content[key], lines, key)).tolist())
    if content.get('floating') is not None:
        if not isinstance(content['floating'], bool):
            raise EstimationError(f"{lines.say('floating')}floating is '{content['floating']}'; true or false is needed.")
        more['floating'] = content['floating']
    if 'smoothing' in content:
        more['smoothing'] = float(_numbers(content['smoothing'], lines, 'smoothing'))
    if 'contact_free' in content:
        more['contact_free'] = _prior(content['contact_free'], lines, 'contact_free')
    if 'contacts' in content:
        contacts = content['contacts']
        if isinstance(contacts, list):
            contacts = {str(name): {} for name in contacts}
        usual = {'std': [200.0] * 3 + [50.0] * 3}
        more['contacts'] = {
            str(k): _prior(x or usual, lines, 'contacts', str(k)) for k, x in _mapping(contacts, lines, 'contacts').items()
        }
    for key in ('joint_acceleration', 'acceleration', 'joint_wrench'):
        if key in content:
            more[key] = {str(k): _prior(x, lines, key, str(k)) for k, x in _mapping(content[key], lines, key).items()}
    for key in ('equation_noise', 'motion_noise'):
        if key in content:
            x = content[key] if isinstance(content[key], Mapping) else {'*': content[key]}
            more[key] = {str(k): _numbers(v, lines, key, str(k)) for k, v in x.items()}
    return WrenchSetup(tuple(sensors), **more)


def _known(content: Mapping, keys: tuple[str, ...], lines: _Lines, *at: str) -> None:
    for key in content:
        if key not in keys:
            raise EstimationError(
                f"{lines.say(*at, str(key))}there is no key '{key}'{' in ' + '.'.join(at) if at else ''}.{did_you_mean(str(key), keys)}"
            )


def _mapping(x: Any, lines: _Lines, *at: str) -> Mapping:
    if x is None:
        return {}
    if not isinstance(x, Mapping):
        raise EstimationError(f'{lines.say(*at)}{".".join(at)} must be a mapping of names.')
    return x


def _numbers(x: Any, lines: _Lines, *at: str) -> np.ndarray:
    try:
        out = np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        raise EstimationError(f"{lines.say(*at)}{'.'.join(at)} is '{x}'; numbers are needed.") from None
    if not np.isfinite(out).all():
        raise EstimationError(f'{lines.say(*at)}{".".join(at)} is {x}; every number must be finite.')
    return out


def _noise(x: Mapping, lines: _Lines, *at: str) -> np.ndarray:
    if ('noise' in x) == ('covariance' in x):
        raise EstimationError(
            f'{lines.say(*at)}{".".join(at)} needs either noise (standard deviations) or covariance (a matrix).'
        )
    key = 'noise' if 'noise' in x else 'covariance'
    out = _numbers(x[key], lines, *at, key)
    if key == 'noise' and out.ndim > 1:
        raise EstimationError(f'{lines.say(*at, key)}noise of {".".join(at)} is a matrix; write covariance.')
    return out


def _prior(x: Any, lines: _Lines, *at: str) -> Prior:
    if not isinstance(x, Mapping):
        return Prior(_numbers(x, lines, *at))
    _known(x, PRIOR, lines, *at)
    if ('std' in x) == ('covariance' in x):
        raise EstimationError(f'{lines.say(*at)}{".".join(at)} needs either std or covariance.')
    key = 'std' if 'std' in x else 'covariance'
    return Prior(_numbers(x[key], lines, *at, key), _numbers(x.get('mean', 0.0), lines, *at, 'mean'))


def _sensor(name: str, x: Mapping, lines: _Lines) -> WrenchSensor:
    at = ('sensors', name)
    _known(x, SENSOR, lines, *at)
    for key in ('type', 'on'):
        if key not in x:
            raise EstimationError(f"{lines.say(*at)}sensor '{name}' has no {key}.")
    if x['type'] not in SENSORS:
        raise EstimationError(
            f"{lines.say(*at, 'type')}sensor '{name}' has type '{x['type']}'.{did_you_mean(str(x['type']), SENSORS)}"
        )
    more: dict[str, Any] = {
        key: tuple(_numbers(x[key], lines, *at, key).tolist()) for key in ('position', 'rpy', 'normal') if key in x
    }
    if 'offset' in x:
        more['offset'] = _numbers(x['offset'], lines, *at, 'offset')
    if x.get('gate') is not None:
        more['gate'] = float(_numbers(x['gate'], lines, *at, 'gate'))
    more |= {key: str(x[key]) for key in ('frame_link', 'acts_on', 'share', 'signal') if key in x}
    if x.get('sub_mass') is not None:
        part = _mapping(x['sub_mass'], lines, *at, 'sub_mass')
        _known(part, ('mass', 'center_of_mass', 'inertia'), lines, *at, 'sub_mass')
        if 'mass' not in part:
            raise EstimationError(f"{lines.say(*at, 'sub_mass')}sub_mass of sensor '{name}' has no mass.")
        more['sub_mass'] = SubMass(
            float(_numbers(part['mass'], lines, *at, 'sub_mass', 'mass')),
            tuple(_numbers(part.get('center_of_mass', (0, 0, 0)), lines, *at, 'sub_mass', 'center_of_mass').tolist()),
            _numbers(part.get('inertia', (0, 0, 0)), lines, *at, 'sub_mass', 'inertia'),
        )
    return WrenchSensor(name, str(x['type']), str(x['on']), _noise(x, lines, *at), **more)


def _plain(x: Any) -> Any:
    """Numbers as YAML likes them."""
    x = np.asarray(x, dtype=float)
    return float(x) if x.ndim == 0 else x.tolist()


def _noise_entry(noise: Any, word: str) -> dict[str, Any]:
    x = np.asarray(noise, dtype=float)
    if x.ndim == 2 and not (x - np.diag(np.diag(x))).any():
        return {word: [math.sqrt(v) for v in np.diag(x)]}
    return {'covariance' if x.ndim == 2 else word: _plain(x)}


def save_wrench_setup(setup: WrenchSetup, path: str | Path) -> Path:
    """Write a setup whole, sensors one by one; `load_wrench_setup` reads it back to the same numbers."""
    out: dict[str, Any] = {
        key: getattr(setup, key) for key in ('base', 'positions', 'velocities', 'base_velocity') if getattr(setup, key)
    }
    out |= {'smoothing': float(setup.smoothing), 'joint_noise': _plain(setup.joint_noise)}
    if setup.floating is not None:
        out['floating'] = setup.floating
    if setup.gravity is not None:
        out['gravity'] = _plain(setup.gravity)

    def prior(p: Prior) -> dict[str, Any]:
        entry = _noise_entry(p.noise, 'std')
        return entry | ({'mean': _plain(p.mean)} if np.any(np.asarray(p.mean)) else {})

    out['contact_free'] = prior(setup.contact_free)
    for key in ('contacts', 'joint_acceleration', 'acceleration', 'joint_wrench'):
        if getattr(setup, key):
            out[key] = {name: prior(p) for name, p in getattr(setup, key).items()}
    for key in ('equation_noise', 'motion_noise'):
        out[key] = {}
        for name, x in getattr(setup, key).items():
            entry = _noise_entry(x, 'std')
            out[key][name] = entry.get('std', entry.get('covariance'))
    out['sensors'] = {}
    for s in setup.sensors:
        entry = {'type': s.type, 'on': s.on} | _noise_entry(s.noise, 'noise')
        for key in ('position', 'rpy', 'offset'):
            if np.any(np.asarray(getattr(s, key))):
                entry[key] = _plain(getattr(s, key))
        entry |= {key: getattr(s, key) for key in ('frame_link', 'acts_on', 'share', 'signal') if getattr(s, key)}
        if s.gate is not None:
            entry['gate'] = float(s.gate)
        if s.type == 'skin':
            entry['normal'] = _plain(s.normal)
        if s.sub_mass is not None:
            entry['sub_mass'] = {
                'mass': float(s.sub_mass.mass),
                'center_of_mass': _plain(s.sub_mass.center_of_mass),
                'inertia': _plain(s.sub_mass.inertia),
            }
        out['sensors'][s.name] = entry
    path = Path(path)
    path.write_text(
        '# Sensors, contacts and noise of a wrench estimate; SI units.\n' + yaml.safe_dump(out, sort_keys=False, width=130),
        encoding='utf-8',
    )
    return path
