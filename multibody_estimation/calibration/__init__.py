# SPDX-License-Identifier: Apache-2.0
"""In-situ calibration of six-axis force/torque sensors from known masses and an accelerometer."""

from multibody_estimation.calibration.calibrate import calibrate_force_torque as calibrate_force_torque
from multibody_estimation.calibration.enough import check_data as check_data
from multibody_estimation.calibration.enough import rank as rank
from multibody_estimation.calibration.enough import rank_in_words as rank_in_words
from multibody_estimation.calibration.model import Dataset as Dataset
from multibody_estimation.calibration.model import Load as Load
from multibody_estimation.calibration.model import Noise as Noise
from multibody_estimation.calibration.planner import plan as plan
from multibody_estimation.calibration.recalibration import choose_ridge as choose_ridge
from multibody_estimation.calibration.recalibration import recalibrate as recalibrate
from multibody_estimation.calibration.result import Calibration as Calibration
from multibody_estimation.calibration.simulated import StrainSensor as StrainSensor
