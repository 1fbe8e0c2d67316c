# SPDX-License-Identifier: Apache-2.0
"""Parameters as the solver sees them: scaled coordinates z, and what a z means for the model, the inputs and the sensors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import dynamics, inertia
from multibody_estimation.identification.observations import NUMBERS, Observation
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.robot import Robot

__all__ = ['Binding', 'Key', 'bind', 'with_values']

INPUT_NUMBERS = ('delay', 'gain', 'back_emf', 'offset')


@dataclass(frozen=True)
class Binding:
    """The free parameters of a robot and how their scaled values enter it."""

    robot: Robot
    """The robot with its fixed parameters set, and placeholders where free ones go: equal for equal programs."""
    parameters: tuple[Parameter, ...]
    """Free parameters, each with a start."""
    given: Robot
    """The robot as it was given, with its fixed parameters set."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def estimates(self, name: str) -> bool:
        """Whether a parameter of this name, or for this leaf, is free."""
        return any(p.target == name for p in self.parameters)

    def known_inputs(self) -> list[dict]:
        """Numbers of each input as the robot has them."""
        return [{key: getattr(i, key) for key in INPUT_NUMBERS} for i in self.robot.inputs]

    def offsets(self) -> list[list[float]]:
        """Offsets of each sensor's readings where the search starts; empty lists for sensors without."""
        places, out = _places(self.robot), [list(getattr(s, 'offset', ())) for s in self.robot.sensors]
        for p in self.parameters:
            if p.assign is None and p.target in places and places[p.target][2] == 'offset' and places[p.target][0] == 'sensor':
                out[places[p.target][1]][places[p.target][3]] = float(p.start or 0.0)
        return out

    def starts(self) -> np.ndarray:
        """Where the search starts, (p,)."""
        return np.array([p.start for p in self.parameters], dtype=float)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Coordinates z (p,) of values (p,)."""
        return np.array([np.log(v) if p.transform == 'log' else v / p.step for p, v in zip(self.parameters, values)], dtype=float)

    def values(self, z: Any) -> Any:
        """Physical values (p,) of coordinates z (p,); numpy in, numpy out."""
        xp = np if isinstance(z, np.ndarray) else jnp
        if not self.parameters:
            return xp.zeros(0)
        return xp.stack([xp.exp(z[i]) if p.transform == 'log' else z[i] * p.step for i, p in enumerate(self.parameters)])

    def slopes(self, z: np.ndarray) -> np.ndarray:
        """d value / d z, (p,)."""
        values = self.values(np.asarray(z))
        return np.array([v if p.transform == 'log' else p.step for p, v in zip(self.parameters, values)])

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of z."""
        with np.errstate(divide='ignore'):
            lower = [np.log(max(p.lower, 0.0)) if p.transform == 'log' else p.lower / p.step for p in self.parameters]
            upper = [np.log(p.upper) if p.transform == 'log' else p.upper / p.step for p in self.parameters]
        return np.array(lower, dtype=float), np.array(upper, dtype=float)

    def apply(self, values: Any) -> tuple[Any, tuple[dict, ...], tuple[dict, ...]]:
        """Model, input numbers and sensor numbers for parameter values (p,); JAX-traceable."""
        model = self.robot.model
        inputs = [{key: getattr(i, key) for key in INPUT_NUMBERS} for i in self.robot.inputs]
        sensors = [_sensor_numbers(s) for s in self.robot.sensors]
        # Own functions first: they take the bare model, before estimated numbers are kept beside it.
        order = sorted(range(len(self.parameters)), key=lambda k: self.parameters[k].assign is None)
        for k in order:
            parameter = self.parameters[k]
            model = _place(self.robot, parameter, values[k], model, inputs, sensors)
        return model, tuple(inputs), tuple(sensors)


@dataclass(frozen=True, eq=False)
class Key:
    """A binding as a key: equal where the compiled programs would be; starts and bounds of the search do not count."""

    binding: Binding

    def _content(self) -> tuple:
        leaves, shape = jax.tree.flatten(self.binding.robot.model)
        numbers = tuple((np.shape(x), np.asarray(x).tobytes()) for x in leaves)
        parameters = tuple((p.name, p.target, p.transform, p.step, p.prior, p.assign) for p in self.binding.parameters)
        return shape, numbers, self.binding.robot.inputs, self.binding.robot.sensors, parameters

    def __hash__(self) -> int:
        return hash(self._content())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._content() == other._content()


def _sensor_numbers(sensor: Observation) -> dict:
    numbers = {key: getattr(sensor, key) for key in NUMBERS if hasattr(sensor, key)}
    return {key: list(x) if isinstance(x, tuple) else x for key, x in numbers.items()}


def _places(robot: Robot) -> dict[str, tuple[str, int, str, int]]:
    """Names of the parameters of inputs and sensors, and where each lives: (kind, index, key, entry)."""
    table: dict[str, tuple[str, int, str, int]] = {}
    for k, source in enumerate(robot.inputs):
        name = f'{source.signal}.{source.joint}' if [i.signal for i in robot.inputs].count(source.signal) > 1 else source.signal
        table |= {f'{name}.{key}': ('input', k, key, 0) for key in INPUT_NUMBERS}
    for k, sensor in enumerate(robot.sensors):
        for key, x in _sensor_numbers(sensor).items():
            if isinstance(x, list):
                table |= {f'{sensor.signal}.{key}.{axis}': ('sensor', k, key, j) for j, axis in enumerate(sensor.axes)}
            else:
                table[f'{sensor.signal}.{key}'] = ('sensor', k, key, -1)
    return table


def _address(robot: Robot, name: str) -> tuple[str, int, str, int] | None:
    """Where a parameter of an input or sensor lives; None for one of the model."""
    return _places(robot).get(name)


def _place(robot: Robot, parameter: Parameter, value: Any, model: Any, inputs: list, sensors: list) -> Any:
    if parameter.assign is not None:
        return parameter.assign(model, value)
    address = _address(robot, parameter.target)
    if address is None:
        return dynamics.set_number(model, parameter.target, value)
    kind, index, key, entry = address
    if kind == 'input':
        inputs[index][key] = value
    elif entry < 0:
        sensors[index][key] = value
    else:
        sensors[index][key][entry] = value
    return model


def _plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in numbers.items()}


def known_names(robot: Robot) -> list[str]:
    return [*_places(robot), *dynamics.number_names(robot.model)]


def bind(robot: Robot, parameters: tuple[Parameter, ...]) -> Binding:
    """Check every parameter against the robot, give it a start and set the fixed ones."""
    joints = dynamics.joint_names(robot.model)
    elements: list[Any] = [*robot.inputs, *robot.sensors]
    for element in elements:
        for joint in getattr(element, 'joints', None) or ([element.joint] if getattr(element, 'joint', '') else []):
            if joint not in joints:
                raise EstimationError(f"{element.signal}: the robot has no joint '{joint}'.{did_you_mean(joint, joints)}")
        link = getattr(element, 'link', '')
        if link and link not in dynamics.as_tree(robot.model).link_names:
            names = dynamics.as_tree(robot.model).link_names
            raise EstimationError(f"{element.signal}: the robot has no link '{link}'.{did_you_mean(link, names)}")
    free = []
    for parameter in parameters:
        if parameter.assign is None and parameter.target not in (known := known_names(robot)):
            raise EstimationError(f"'{parameter.target}' is no parameter of this robot.{did_you_mean(parameter.target, known)}")
        if parameter.start is None:
            if parameter.assign is not None:
                raise EstimationError(f'{parameter.name}: a parameter with its own assign function needs a start.')
            parameter = replace(parameter, start=_current(robot, parameter.target))
        if parameter.fixed:
            inputs = [{key: getattr(i, key) for key in INPUT_NUMBERS} for i in robot.inputs]
            sensors = [_sensor_numbers(s) for s in robot.sensors]
            model = _place(robot, parameter, parameter.start, robot.model, inputs, sensors)
            robot = _with_numbers(replace(robot, model=model), inputs, sensors)
        else:
            free.append(parameter)
    robot = replace(robot, model=jax.tree.map(np.asarray, robot.model))
    return Binding(_placeholders(robot, free), tuple(free), robot)


def _placeholders(robot: Robot, free: list[Parameter]) -> Robot:
    """The robot with the same harmless number wherever a free parameter goes; delays of sensors stay, samples are placed by them."""
    inputs = [{key: getattr(i, key) for key in INPUT_NUMBERS} for i in robot.inputs]
    sensors = [_sensor_numbers(s) for s in robot.sensors]
    model = robot.model
    for p in free:
        address = _address(robot, p.target) if p.assign is None else None
        if address is None and inertia.KEY not in p.target:
            model = _place(robot, p, p.step, model, inputs, sensors)
        elif address is not None and address[2] != 'delay' or address is not None and address[0] == 'input':
            _place(robot, p, 0.0, model, inputs, sensors)
    return _with_numbers(replace(robot, model=jax.tree.map(np.asarray, model)), inputs, sensors)


def _with_numbers(robot: Robot, inputs: list[dict], sensors: list[dict]) -> Robot:
    return replace(
        robot,
        inputs=tuple(replace(i, **numbers) for i, numbers in zip(robot.inputs, inputs)),
        sensors=tuple(replace(s, **_plain(numbers)) for s, numbers in zip(robot.sensors, sensors)),
    )


def with_values(robot: Robot, values: Mapping[str, float]) -> Robot:
    """Return the robot with some of its parameters set, in the model, the inputs and the sensors, and as starts."""
    known = {p.name: p for p in robot.parameters}
    for name in values:
        if name not in known:
            raise EstimationError(f"'{name}' is no parameter of {robot.name}.{did_you_mean(name, known)}")
    fixed = tuple(replace(known[n].with_start(v), fixed=True) for n, v in values.items())
    moved = tuple(p.with_start(values[p.name]) if p.name in values else p for p in robot.parameters)
    return replace(bind(robot, fixed).given, parameters=moved)


def _current(robot: Robot, name: str) -> float:
    address = _address(robot, name)
    if address is None:
        return dynamics.get_number(robot.model, name)
    kind, index, key, entry = address
    if kind == 'input':
        return float(getattr(robot.inputs[index], key))
    number = _sensor_numbers(robot.sensors[index])[key]
    return float(number if entry < 0 else number[entry])
