# SPDX-License-Identifier: Apache-2.0
"""Joint estimation of states and parameters of a mechanism from a recording of its motion."""

from multibody_estimation.identification.binding import with_values
from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.horizon import StateEstimate, Tracker, moving_horizon
from multibody_estimation.identification.identify import identify, track
from multibody_estimation.identification.influence import Influence, influence
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
from multibody_estimation.identification.prediction import Prediction, WindowErrors, predict, predict_windows
from multibody_estimation.identification.problem import Problem, prepare
from multibody_estimation.identification.robot import Robot
from multibody_estimation.identification.simulation import simulate
from multibody_estimation.identification.weight import WeightChoice, choose_weight

__all__ = [
    'Accelerometer', 'Custom', 'Encoder', 'Fit', 'ForceTorque', 'Gyroscope', 'Influence', 'Input', 'JointTorque', 'Observation',
    'Parameter', 'Position', 'Prediction', 'Problem', 'Robot', 'StateEstimate', 'Tracker', 'WeightChoice', 'WindowErrors',
    'choose_weight', 'identify', 'influence', 'moving_horizon', 'predict', 'predict_windows', 'prepare', 'select', 'simulate',
    'track', 'with_values',
]  # fmt: skip
