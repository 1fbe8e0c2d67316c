# SPDX-License-Identifier: Apache-2.0
"""Centroidal motion of legged robots: maximum a posteriori smoother by differential dynamic programming.

From a robot's sensors: `load_centroidal_setup` and `estimate_centroidal` (offline), `OnlineCentroidal` (sample by sample). From
centroidal measurements of any origin: `Measurement` and `estimate_centroidal`, or `make_sample` and `push`.
"""

from multibody_estimation.centroidal.body import WholeBody
from multibody_estimation.centroidal.contacts import acceleration_at, sum_wrenches
from multibody_estimation.centroidal.ddp import Settings, Trajectory, solve
from multibody_estimation.centroidal.estimate import estimate_centroidal
from multibody_estimation.centroidal.lag import LagSmoother, Sample, make_sample, push, start_lag_smoother
from multibody_estimation.centroidal.model import BLOCKS, StateLayout
from multibody_estimation.centroidal.online import CentroidalNow, CentroidalState, OnlineCentroidal
from multibody_estimation.centroidal.problem import Measurement, Problem, ProcessNoise, assemble
from multibody_estimation.centroidal.recorded import Signals, measure_recording
from multibody_estimation.centroidal.result import CentroidalEstimate, load_centroidal
from multibody_estimation.centroidal.robust import Loss
from multibody_estimation.centroidal.setup import CentroidalSetup, load_centroidal_setup

__all__ = [
    'BLOCKS', 'CentroidalEstimate', 'CentroidalNow', 'CentroidalSetup', 'CentroidalState', 'LagSmoother', 'Loss', 'Measurement',
    'OnlineCentroidal', 'Problem', 'ProcessNoise', 'Sample', 'Settings', 'Signals', 'StateLayout', 'Trajectory', 'WholeBody',
    'acceleration_at', 'assemble', 'estimate_centroidal', 'load_centroidal', 'load_centroidal_setup', 'make_sample',
    'measure_recording', 'push', 'solve', 'start_lag_smoother', 'sum_wrenches',
]  # fmt: skip
