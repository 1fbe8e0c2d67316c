# SPDX-License-Identifier: Apache-2.0
"""Replay: what comes out of the device is what stands in the bag, at the pace asked for."""

import time
from pathlib import Path

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.collect import collect, gather_samples
from multibody_estimation.hardware.driver import Driver
from multibody_estimation.hardware.replay import Replay
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.definitions import typestore
from multibody_estimation.window import Signal, Window

BAG = str(Path(__file__).resolve().parents[1] / 'rosbags/furuta_chirp')
START = 1_700_000_000_000_000_000
TYPES = typestore().types


def short(tmp_path, count=40, step=5_000_000):
    stamps = START + np.arange(count) * step
    xyz = ('x', 'y', 'z')
    rng = np.random.default_rng(0)
    window = Window.gather([
        Signal('encoders', stamps, rng.normal(size=(count, 2)), ('a', 'b'), 'rad'),
        Signal('joint_velocities', stamps, rng.normal(size=(count, 2)), ('a', 'b'), 'rad/s'),
        Signal('command', stamps + 1, rng.normal(size=(count, 1)), ('a',), 'V'),
        Signal('imu/accelerometer', stamps, rng.normal(size=(count, 3)), xyz, 'm/s^2', 'base'),
        Signal('imu/gyroscope', stamps, rng.normal(size=(count, 3)), xyz, 'rad/s', 'base'),
        Signal('ft/l/strain', stamps, rng.normal(size=(count, 6)), ('fx', 'fy', 'fz', 'tx', 'ty', 'tz'), 'counts', 'l'),
    ])  # fmt: skip
    return str(me.write_bag(tmp_path / 'bag', window)), window


def test_as_fast_as_possible_gives_the_window_of_the_bag():
    played, stored = collect(Replay(BAG, speed=0), 60.0), me.read_bag(BAG)
    for name in stored:
        np.testing.assert_array_equal(played[name].stamps, stored[name].stamps)
        np.testing.assert_array_equal(played[name].values, stored[name].values)
        assert played[name].columns == stored[name].columns and played[name].unit == stored[name].unit
    assert played.truth == stored.truth and len(stored.truth) == 13


def test_every_kind_of_message_comes_out_as_it_went_in(tmp_path):
    bag, window = short(tmp_path)
    played = collect(Replay(bag, speed=0), 60.0)
    for name in window:
        np.testing.assert_array_equal(played[name].values, window[name].values)
        assert (played[name].columns, played[name].unit, played[name].frame) == (
            window[name].columns,
            window[name].unit,
            window[name].frame,
        )
    assert played['imu/gyroscope'].noise == (0.005,) * 3  # stated by the option, for the messages leave it open


@pytest.mark.parametrize('speed', [1.0, 4.0])
def test_the_pace_is_that_of_the_recording(tmp_path, speed):
    bag, _ = short(tmp_path, count=41, step=10_000_000)
    device = Replay(bag, speed=speed)
    times = []
    with device:
        begin = time.monotonic()
        while not device.finished and time.monotonic() - begin < 5:
            for sample in device.read(0.1):
                times.append((time.monotonic() - begin, (sample.stamp - START) / 1e9))
    late = np.array([real - stamp / speed for real, stamp in times])
    assert len(times) == 41 * 4 and late.min() > -2e-3 and np.median(late) < 0.1


def test_doubles_disorder_and_nan_are_played_and_the_window_tells_of_them(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag:
        for k, i in enumerate([0, 1, 2, 2, 4, 3, 5, 6, 7, 8]):
            stamp = START + i * 5_000_000
            head = TYPES['std_msgs/msg/Header'](TYPES['builtin_interfaces/msg/Time'](stamp // 10**9, stamp % 10**9), '')
            names, values = (['b', 'a'], [2.0, 1.0]) if k == 6 else (['a', 'b'], [1.0, np.nan if k == 8 else 2.0])
            state = TYPES['sensor_msgs/msg/JointState'](head, names, np.array(values), np.zeros(0), np.zeros(0))
            bag.write_message('/joint_states', state, START + k)
        bag.write('/joint_states', 'sensor_msgs/msg/JointState', START + 99, b'\x00\x01\x00\x00???')
    device = Replay(str(tmp_path / 'bag'), speed=0)
    with device:
        samples = device.read(0.0)
    played, stored = gather_samples(device.channels, samples), me.read_bag(tmp_path / 'bag')
    np.testing.assert_array_equal(played['encoders'].values, stored['encoders'].values)
    kinds = [d.kind for d in stored.defects if d.kind != 'file']
    assert [d.kind for d in played.defects] == kinds and {'duplicate', 'reordered', 'nan'} <= set(kinds)
    assert device.counts == {'messages that could not be played': 1}


def test_the_driver_plays_to_the_end_and_does_not_call_it_a_stall(tmp_path):
    bag, _ = short(tmp_path, count=10)
    driver = Driver(Replay(bag, speed=0))
    begin = time.monotonic()
    while time.monotonic() - begin < 0.8:
        driver.poll(0.05)
    assert driver.samples['joint_states'] == 10 and driver.watchdog.reconnects == 0
    assert driver.device.finished and driver.report()['State'] == 'running'


def test_what_cannot_be_played_is_said(tmp_path):
    for options, sentence in [({}, 'which bag'), ({'bag': BAG, 'topics': ('/joint_state',)}, "Did you mean '/joint_states'"),
                              ({'bag': BAG, 'speed': -1.0}, 'not be negative'), ({'bag': str(tmp_path / 'no')}, 'no bag')]:  # fmt: skip
        with pytest.raises(EstimationError, match=sentence):
            Replay(**options)
    only = collect(Replay(BAG, speed=0, topics=('/joint_states',)), 60.0)
    assert list(only) == ['encoders']
