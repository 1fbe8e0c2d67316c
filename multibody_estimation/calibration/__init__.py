# SPDX-License-Identifier: Apache-2.0
"""In-situ calibration of six-axis force/torque sensors from known masses and an accelerometer."""

from multibody_estimation.calibration.calibrate import calibrate_force_torque as calibrate_force_torque
from multibody_estimation.calibration.enough import check_data as check_data
from multibody_estimation.calibration.enough import rank as rank
from multibody_estimation.calibration.enough import rank_in_words as rank_in_words
from multibody_estimation.calibration.gating import Gates as Gates
from multibody_estimation.calibration.gating import Sample as Sample
from multibody_estimation.calibration.gating import static_stretches as static_stretches
from multibody_estimation.calibration.model import Dataset as Dataset
from multibody_estimation.calibration.model import Load as Load
from multibody_estimation.calibration.model import Noise as Noise
from multibody_estimation.calibration.planner import plan as plan
from multibody_estimation.calibration.quality import Quality as Quality
from multibody_estimation.calibration.quality import compare_with_factory as compare_with_factory
from multibody_estimation.calibration.quality import held_out as held_out
from multibody_estimation.calibration.readings import Readings as Readings
from multibody_estimation.calibration.recalibration import choose_ridge as choose_ridge
from multibody_estimation.calibration.recalibration import recalibrate as recalibrate
from multibody_estimation.calibration.result import Calibration as Calibration
from multibody_estimation.calibration.session import Session as Session
from multibody_estimation.calibration.simulated import StrainSensor as StrainSensor
from multibody_estimation.calibration.simulated import simulated_session as simulated_session
