# SPDX-License-Identifier: Apache-2.0
"""Joint estimation of states and parameters of a mechanism from a recording of its motion."""

from multibody_estimation.identification.binding import with_values
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.identify import identify, track
from multibody_estimation.identification.observations import (
    Accelerometer,
    Custom,
    Encoder,
    ForceTorque,
    Gyroscope,
    Input,
    JointTorque,
    Observation,
    Position,
)
from multibody_estimation.identification.parameters import Parameter, select
from multibody_estimation.identification.prediction import Prediction, predict
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot

__all__ = [
    'Accelerometer', 'Custom', 'Encoder', 'Fit', 'ForceTorque', 'Gyroscope', 'Input', 'JointTorque', 'Observation', 'Parameter',
    'Position', 'Prediction', 'Problem', 'Robot', 'identify', 'predict', 'prepare', 'select', 'track', 'with_values',
]  # fmt: skip
