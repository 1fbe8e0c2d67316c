# SPDX-License-Identifier: Apache-2.0
"""Maximum-a-posteriori whole-body dynamics: external wrenches, joint torques and accelerations of a tree, with covariance.

Problem 1 is `estimate_wrenches` for a recording and `WrenchEstimator` for a live system, problem 2 `estimate_state` and `StateFilter`,
problem 3 `learn_covariances`.
"""

from multibody_estimation.wrench.estimate import WrenchEstimate, estimate_wrenches, samples_of
from multibody_estimation.wrench.estimator import WrenchEstimator, WrenchSample, base_velocity_from_gyroscopes
from multibody_estimation.wrench.lag import StateFilter, StateTrack, track_states
from multibody_estimation.wrench.learn import Learned, learn_covariances
from multibody_estimation.wrench.locate import ContactEvidence, locate_contact
from multibody_estimation.wrench.observability import Observability, observe
from multibody_estimation.wrench.posterior import Block, Posterior, log_evidence, solve
from multibody_estimation.wrench.program import Program, compile_wrench
from multibody_estimation.wrench.settings import Prior, SubMass, WrenchSensor, WrenchSetup
from multibody_estimation.wrench.setup_file import joint_sensors, load_wrench, load_wrench_setup, model_sensors, save_wrench_setup
from multibody_estimation.wrench.state import StateEstimate, estimate_state

__all__ = [
    'Block', 'ContactEvidence', 'Learned', 'Observability', 'Posterior', 'Prior', 'Program', 'StateEstimate', 'StateFilter', 'StateTrack', 'SubMass',
    'WrenchEstimate', 'WrenchEstimator', 'WrenchSample', 'WrenchSensor', 'WrenchSetup', 'base_velocity_from_gyroscopes', 'compile_wrench',
    'estimate_state', 'estimate_wrenches', 'joint_sensors', 'learn_covariances', 'load_wrench', 'load_wrench_setup', 'locate_contact', 'log_evidence', 'model_sensors',
    'observe', 'samples_of', 'save_wrench_setup', 'solve', 'track_states',
]  # fmt: skip
