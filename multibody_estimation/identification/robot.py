# SPDX-License-Identifier: Apache-2.0
"""`Robot`: a model with what its drawing cannot say: inputs, sensors, and the parameters worth estimating."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.identification.observations import Encoder, Input, Observation
from multibody_estimation.identification.parameters import Parameter, check_names

__all__ = ['Robot']


@dataclass(frozen=True)
class Robot:
    """Everything `identify` needs to know about a mechanism; the recording is the rest."""

    name: str
    model: Any
    """A `tree.Model`, or for the ``maximal`` and ``paper`` forms a mechanism in maximal coordinates."""
    inputs: tuple[Input, ...] = ()
    sensors: tuple[Observation, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of `identify` for this robot, e.g. ``{'weight': 0.3, 'step': 0.004}``."""

    def __post_init__(self) -> None:
        if not any(isinstance(s, Encoder) for s in self.sensors):
            raise EstimationError(
                f'{self.name}: a robot without encoders cannot be estimated: the motion starts from their readings. Give at least one Encoder.'
            )
        object.__setattr__(self, 'inputs', tuple(self.inputs))
        object.__setattr__(self, 'sensors', tuple(self.sensors))
        object.__setattr__(self, 'parameters', check_names(self.parameters))
        signals = [*(i.signal for i in self.inputs), *(s.signal for s in self.sensors)]
        for signal in signals:
            if signals.count(signal) > 1 and signal not in [i.signal for i in self.inputs]:
                raise EstimationError(f"{self.name}: two sensors read the signal '{signal}'.")

    def with_parameters(self, *parameters: Parameter) -> 'Robot':
        """Return the robot with these parameters in place of its own."""
        return replace(self, parameters=tuple(parameters))
