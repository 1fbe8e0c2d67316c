# SPDX-License-Identifier: Apache-2.0
"""Centroidal motion of legged robots: maximum a posteriori smoother by differential dynamic programming."""

from multibody_estimation.centroidal.contacts import acceleration_at, sum_wrenches
from multibody_estimation.centroidal.ddp import Settings, Trajectory, solve
from multibody_estimation.centroidal.estimate import estimate_centroidal
from multibody_estimation.centroidal.lag import LagSmoother, Sample, make_sample, push, start_lag_smoother
from multibody_estimation.centroidal.model import BLOCKS, StateLayout
from multibody_estimation.centroidal.problem import Measurement, Problem, ProcessNoise, assemble
from multibody_estimation.centroidal.result import CentroidalEstimate, load_centroidal
from multibody_estimation.centroidal.robust import Loss

__all__ = [
    'BLOCKS',
    'CentroidalEstimate',
    'LagSmoother',
    'Loss',
    'Measurement',
    'Problem',
    'ProcessNoise',
    'Sample',
    'Settings',
    'StateLayout',
    'Trajectory',
    'acceleration_at',
    'assemble',
    'estimate_centroidal',
    'load_centroidal',
    'make_sample',
    'push',
    'solve',
    'start_lag_smoother',
    'sum_wrenches',
]
