# SPDX-License-Identifier: Apache-2.0
"""Joint estimation of states and parameters of a mechanism from a recording of its motion."""

from multibody_estimation.identification.fit import Fit
from multibody_estimation.identification.identify import identify, prepare, track
from multibody_estimation.identification.observations import Custom, Encoder, Gyroscope, Input, JointTorque, Observation
from multibody_estimation.identification.parameters import Parameter, select
from multibody_estimation.identification.prediction import Prediction, predict
from multibody_estimation.identification.robot import Robot

__all__ = ['Custom', 'Encoder', 'Fit', 'Gyroscope', 'Input', 'JointTorque', 'Observation', 'Parameter', 'Prediction', 'Robot',
           'identify', 'predict', 'prepare', 'select', 'track']  # fmt: skip
