# SPDX-License-Identifier: Apache-2.0
"""Joint estimation of states and parameters of a mechanism from a recording of its motion."""

from multibody_estimation.identification.observations import Custom, Encoder, Gyroscope, Input, JointTorque, Observation
from multibody_estimation.identification.parameters import Parameter, select
from multibody_estimation.identification.robot import Robot

__all__ = ['Custom', 'Encoder', 'Gyroscope', 'Input', 'JointTorque', 'Observation', 'Parameter', 'Robot', 'select']
