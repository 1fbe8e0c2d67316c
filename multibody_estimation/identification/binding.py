# SPDX-License-Identifier: Apache-2.0
"""Parameters as the solver sees them: scaled coordinates z, and what a z means for the model, the inputs and the sensors."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multibody_estimation._jax import jax, jnp
from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.identification import dynamics
from multibody_estimation.identification.observations import Encoder, Gyroscope
from multibody_estimation.identification.parameters import Parameter
from multibody_estimation.identification.robot import Robot

__all__ = ['Binding', 'bind', 'with_values']

INPUT_NUMBERS = ('delay', 'gain', 'back_emf', 'offset')


@dataclass(frozen=True)
class Binding:
    """The free parameters of a robot and how their scaled values enter it."""

    robot: Robot
    """The robot with its fixed parameters already set."""
    parameters: tuple[Parameter, ...]
    """Free parameters, each with a start."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

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


def _sensor_numbers(sensor: Any) -> dict:
    if isinstance(sensor, Encoder):
        return {'offset': list(sensor.offset or (0.0,) * len(sensor.joints))}
    if isinstance(sensor, Gyroscope):
        return {'bias': list(sensor.bias)}
    return {}


def _address(robot: Robot, name: str) -> tuple[str, int, str, int] | None:
    """Where a parameter of an input or sensor lives: (kind, index, key, entry); None for one of the model."""
    for k, source in enumerate(robot.inputs):
        for key in INPUT_NUMBERS:
            if name == f'{source.signal}.{key}':
                return 'input', k, key, 0
    for k, sensor in enumerate(robot.sensors):
        if isinstance(sensor, Encoder):
            for j, joint in enumerate(sensor.joints):
                if name == f'{sensor.signal}.offset.{joint}':
                    return 'sensor', k, 'offset', j
        if isinstance(sensor, Gyroscope):
            for j, axis in enumerate('xyz'):
                if name == f'{sensor.signal}.bias.{axis}':
                    return 'sensor', k, 'bias', j
    return None


def _place(robot: Robot, parameter: Parameter, value: Any, model: Any, inputs: list, sensors: list) -> Any:
    if parameter.assign is not None:
        return parameter.assign(model, value)
    address = _address(robot, parameter.target)
    if address is None:
        return dynamics.set_number(model, parameter.target, value)
    kind, index, key, entry = address
    if kind == 'input':
        inputs[index][key] = value
    else:
        sensors[index][key][entry] = value
    return model


def _known(robot: Robot) -> list[str]:
    known = [f'{i.signal}.{key}' for i in robot.inputs for key in INPUT_NUMBERS]
    for sensor in robot.sensors:
        if isinstance(sensor, Encoder):
            known += [f'{sensor.signal}.offset.{joint}' for joint in sensor.joints]
        if isinstance(sensor, Gyroscope):
            known += [f'{sensor.signal}.bias.{axis}' for axis in 'xyz']
    return known + dynamics.number_names(robot.model)


def bind(robot: Robot, parameters: tuple[Parameter, ...]) -> Binding:
    """Check every parameter against the robot, give it a start and set the fixed ones."""
    joints = dynamics.joint_names(robot.model)
    for element in (*robot.inputs, *robot.sensors):
        for joint in getattr(element, 'joints', None) or ([element.joint] if getattr(element, 'joint', '') else []):
            if joint not in joints:
                raise EstimationError(f"{element.signal}: the robot has no joint '{joint}'.{did_you_mean(joint, joints)}")
    free = []
    for parameter in parameters:
        if parameter.assign is None and parameter.target not in (known := _known(robot)):
            raise EstimationError(f"'{parameter.target}' is no parameter of this robot.{did_you_mean(parameter.target, known)}")
        if parameter.start is None:
            if parameter.assign is not None:
                raise EstimationError(f'{parameter.name}: a parameter with its own assign function needs a start.')
            parameter = replace(parameter, start=_current(robot, parameter.target))
        if parameter.fixed:
            inputs = [{key: getattr(i, key) for key in INPUT_NUMBERS} for i in robot.inputs]
            sensors = [_sensor_numbers(s) for s in robot.sensors]
            model = _place(robot, parameter, parameter.start, robot.model, inputs, sensors)
            robot = replace(
                robot,
                model=model,
                inputs=tuple(replace(i, **numbers) for i, numbers in zip(robot.inputs, inputs)),
                sensors=tuple(
                    replace(s, **{k: tuple(v) for k, v in numbers.items()}) for s, numbers in zip(robot.sensors, sensors)
                ),
            )
        else:
            free.append(parameter)
    return Binding(replace(robot, model=jax.tree.map(np.asarray, robot.model)), tuple(free))


def with_values(robot: Robot, values: Mapping[str, float]) -> Robot:
    """Return the robot with some of its parameters set, in the model, the inputs and the sensors, and as starts."""
    known = {p.name: p for p in robot.parameters}
    for name in values:
        if name not in known:
            raise EstimationError(f"'{name}' is no parameter of {robot.name}.{did_you_mean(name, known)}")
    fixed = tuple(replace(known[n].with_start(v), fixed=True) for n, v in values.items())
    moved = tuple(p.with_start(values[p.name]) if p.name in values else p for p in robot.parameters)
    return replace(bind(robot, fixed).robot, parameters=moved)


def _current(robot: Robot, name: str) -> float:
    address = _address(robot, name)
    if address is None:
        return dynamics.get_number(robot.model, name)
    kind, index, key, entry = address
    if kind == 'input':
        return float(getattr(robot.inputs[index], key))
    return float(_sensor_numbers(robot.sensors[index])[key][entry])
