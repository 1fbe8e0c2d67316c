# SPDX-License-Identifier: Apache-2.0
"""Least squares over chains of states with shared parameters, in linear time; knows no robot."""

from multibody_estimation.kernels.arrow import Arrow, assemble, block_size
from multibody_estimation.least_squares.box_qp import box_qp
from multibody_estimation.least_squares.covariance import (
    Information,
    joint_covariance,
    log_determinant,
    parameter_information,
    state_covariance,
)
from multibody_estimation.least_squares.levenberg_marquardt import Chain, Solution, Stop, factorise, solve

__all__ = [
    'Arrow', 'Chain', 'Information', 'Solution', 'Stop', 'assemble', 'block_size', 'box_qp', 'factorise', 'joint_covariance',
    'log_determinant', 'parameter_information', 'solve', 'state_covariance',
]  # fmt: skip
