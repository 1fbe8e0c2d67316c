# SPDX-License-Identifier: Apache-2.0
"""The simulated strain sensor: what is taken while it is held still calibrates it."""

import numpy as np
import pytest

from multibody_estimation.calibration import calibrate_force_torque
from multibody_estimation.calibration.model import Dataset
from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.collect import collect
from multibody_estimation.hardware.simulated_strain import SimulatedStrain

EPOCH = 1_700_000_000_000_000_000


@pytest.fixture(scope='module')
def run():
    device = SimulatedStrain('l_arm_ft', realtime=False, epoch=EPOCH, orientations=14, hold=0.5, turn=0.4, loads=('0', '1.0:0,0,0.1', '2:0.1,0,0.05'), seed=4)  # fmt: skip
    schedule = device.schedule()
    return device, schedule, collect(device, schedule[-1].end)


def test_it_is_still_when_it_says_so_and_turned_in_between(run):
    _, schedule, window = run
    t, gyro = window.seconds('imu/gyroscope'), np.linalg.norm(window['imu/gyroscope'].values, axis=1)
    still = np.any([(t >= h.begin) & (t < h.end) for h in schedule], axis=0)
    assert gyro[still].max() < 0.02 and np.median(gyro[~still]) > 0.5
    size = np.linalg.norm(window['imu/accelerometer'].values, axis=1)
    assert abs(size[still].mean() - 9.80665) < 0.02


def test_gyroscope_and_accelerometer_tell_of_the_same_turning(run):
    _, schedule, window = run
    t, a, w = window.seconds('imu/gyroscope'), window['imu/accelerometer'].values, window['imu/gyroscope'].values
    for one, two in zip(schedule[:5], schedule[1:6]):
        before, after = (a[(t >= h.begin) & (t < h.end)].mean(axis=0) for h in (one, two))
        u = before
        for rate in w[(t >= one.end) & (t < two.begin)]:
            u = u - 0.01 * np.cross(rate, u)  # a vector fixed in the world, seen from the sensor
            u *= np.linalg.norm(before) / np.linalg.norm(u)
        assert np.linalg.norm(u - after) < 0.5


def test_what_was_held_still_calibrates_the_sensor(run):
    device, schedule, window = run
    strain, t = window['ft/l_arm_ft/strain'].values, window.seconds('ft/l_arm_ft/strain')
    acceleration = window['imu/accelerometer'].values
    datasets = []
    for load in dict.fromkeys(h.load for h in schedule):
        rows = [(t >= h.begin) & (t < h.end) for h in schedule if h.load == load]
        datasets.append(Dataset(load, [strain[r].mean(axis=0) for r in rows], [acceleration[r].mean(axis=0) for r in rows]))
    result = calibrate_force_torque(datasets)
    error = np.abs(result.matrix - device.sensor.matrix)
    assert (error / result.standard_deviation).max() < 4.5
    assert (error.max(axis=1) / np.abs(device.sensor.matrix).max(axis=1)).max() < 0.04
    assert window.truth['matrix.12'] == device.sensor.matrix[1, 2]


def test_counts_are_whole_and_drift_with_the_temperature():
    cold, warm = (
        collect(
            SimulatedStrain(realtime=False, epoch=EPOCH, warming=w, hold=5.0, orientations=1, loads=('0',), repeat=False), 60.0
        )
        for w in (0.0, 10.0)
    )
    values = cold['ft/sensor/strain'].values
    assert (values == np.round(values)).all()
    drift = warm['ft/sensor/strain'].values[-200:].mean(axis=0) - values[-200:].mean(axis=0)
    device = SimulatedStrain()
    np.testing.assert_allclose(drift, device.sensor.drift * 10 * 59 / 60, atol=3.5)
    assert abs(warm['ft/sensor/strain/temperature'].values[-1, 0] - 35) < 0.1


def test_nonsense_is_refused():
    for options, sentence in [({'loads': ('a',)}, 'is no load'), ({'loads': ()}, 'one load'), ({'rate': 0.0}, 'above zero')]:
        with pytest.raises(EstimationError, match=sentence):
            SimulatedStrain(**options)
