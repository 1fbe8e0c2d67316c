# SPDX-License-Identifier: Apache-2.0
"""Watchdog, excitation, plug-ins and the driver's loop, with a device that does what the test says."""

import time
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware import device as devices
from multibody_estimation.hardware import pace
from multibody_estimation.hardware.device import (
    Actuators,
    Channel,
    Device,
    DeviceLost,
    Sample,
    device_names,
    load_device,
    make_device,
)
from multibody_estimation.hardware.driver import APPLIED, Driver
from multibody_estimation.hardware.excitation import Excitation, make_excitation
from multibody_estimation.hardware.watchdog import State, Watchdog


@dataclass
class Rig(Device):
    """A device whose samples, silences and failures are scripted."""

    script: list = field(default_factory=list)
    """What the next reads do: a number of samples, or an exception."""
    refuse: int = 0
    """How many attempts to open fail."""
    opened: int = 0
    closed: int = 0
    written: list = field(default_factory=list)
    stops: int = 0
    clock: int = 10**18

    channels = (Channel('joint_states', 'sensor_msgs/msg/JointState', 'encoders', ('a', 'b')),)
    actuators = Actuators(('a', 'b'), 'torque', (1.0, 2.0))

    def open(self):
        self.opened += 1
        if self.refuse:
            self.refuse -= 1
            raise DeviceLost('no such port')

    def read(self, timeout):
        step = self.script.pop(0) if self.script else 0
        if isinstance(step, Exception):
            raise step
        out = []
        for _ in range(step):
            self.clock += 5_000_000
            out.append(Sample('joint_states', self.clock, {'': (0.0, 0.0)}))
        return out

    def write(self, command):
        self.written.append(command.values)

    def stop(self):
        self.stops += 1

    def close(self):
        self.closed += 1


# The watchdog alone, on a clock of its own


def test_a_command_that_runs_out_stops_the_motor_once():
    dog = Watchdog(command_timeout=0.1)
    dog.opened(0.0)
    assert not dog.must_stop(5.0)  # no command, nothing to stop
    dog.commanded(1.0)
    assert not dog.must_stop(1.09)
    assert dog.must_stop(1.11) and not dog.must_stop(1.2)
    dog.commanded(2.0)
    dog.released()
    assert not dog.must_stop(3.0)


def test_a_silent_device_is_stalled_within_a_second_and_a_slow_start_is_allowed():
    dog = Watchdog()
    assert dog.stall_timeout < 1.0
    dog.opened(0.0)
    assert not dog.stalled(2.9) and dog.state is State.WAITING
    dog.sampled(2.95)
    assert not dog.stalled(3.4) and dog.state is State.RUNNING
    assert dog.stalled(3.55) and dog.state is State.STALLED and 'No sample for 0.6 s' in dog.reason
    assert not dog.stalled(3.6)  # told once
    dog.opened(4.0)
    assert dog.stalled(7.1)


def test_attempts_to_open_come_after_pauses_that_double_up_to_a_limit_and_start_again_after_success():
    dog = Watchdog(shortest_pause=0.2, longest_pause=1.0)
    now, pauses = 0.0, []
    assert dog.may_open(now)
    for _ in range(5):
        dog.lost(now, 'gone')
        begin = now
        while not dog.may_open(now):
            now += 0.01
        pauses.append(now - begin)
    np.testing.assert_allclose(pauses, [0.2, 0.4, 0.8, 1.0, 1.0], atol=0.02)
    dog.opened(now)
    dog.sampled(now)
    dog.lost(now, 'gone')
    assert dog.may_open(now + 0.21)
    dog.opened(now + 0.3)
    assert dog.reconnects == 1


# Excitation


@pytest.mark.parametrize('kind', ['chirp', 'sines', 'steps'])
def test_excitations_are_bounded_ramped_and_over_in_time(kind):
    signal = Excitation(kind, amplitude=0.3, duration=4.0, ramp=0.5, offset=-0.05)
    t = np.arange(-1.0, 6.0, 1e-3)
    u = np.array([signal(x) for x in t])
    assert np.abs(u).max() <= 0.3 + 1e-12 and np.abs(u).max() > 0.2
    assert (u[(t < 0) | (t >= 4)] == 0).all()
    ends = np.abs(u[((t >= 0) & (t < 0.05)) | ((t >= 3.95) & (t < 4))])
    assert ends.max() < 0.3 * 0.03


def test_the_chirp_sweeps_its_band():
    signal = Excitation('chirp', amplitude=1.0, duration=20.0, low=0.5, high=4.0)
    t = np.arange(0.0, 20.0, 1e-3)
    u = np.array([signal(x) for x in t])
    crossings = t[1:][np.diff(np.sign(u)) != 0]
    frequency = 0.5 / np.diff(crossings[2:-2])
    assert abs(frequency[0] - 0.55) < 0.1 and abs(frequency[-1] - 3.8) < 0.4 and (np.diff(frequency) > -0.05).all()


def test_the_actuators_limit_wins_and_nonsense_is_refused():
    assert make_excitation(0.1, amplitude=0.5).amplitude == 0.1
    for wrong, sentence in [({'kind': 'chrip'}, "Did you mean 'chirp'"), ({'ramp': 6.0}, 'must fit in'), ({'offset': 1.0}, 'bounds'),
                            ({'duration': 0.0}, 'above zero')]:  # fmt: skip
        with pytest.raises(EstimationError, match=sentence):
            Excitation(**wrong)


# The driver


def test_a_lost_device_is_opened_again_and_its_samples_go_on():
    rig = Rig(script=[2, DeviceLost('cable out'), 3], refuse=1)
    driver = Driver(rig, watchdog=Watchdog(shortest_pause=0.01))
    got, reasons = [], set()
    end = time.monotonic() + 5
    while driver.samples['joint_states'] < 5 and time.monotonic() < end:
        got += driver.poll(0.01)
        reasons.add(driver.watchdog.reason)
    assert sum(s.topic == 'joint_states' for s in got) == 5
    assert {'no such port', 'cable out'} <= reasons
    assert rig.opened == 3 and rig.closed >= 2 and driver.watchdog.reconnects == 1
    assert driver.report()['State'] == 'running'


def test_a_stalled_device_is_closed_and_opened_again():
    rig = Rig(script=[1] + [0] * 1000)
    driver = Driver(rig, watchdog=Watchdog(stall_timeout=0.05, shortest_pause=0.01))
    end = time.monotonic() + 5
    while rig.opened < 2 and time.monotonic() < end:
        driver.poll(0.01)
        time.sleep(0.005)
    assert rig.opened == 2 and rig.closed >= 1


@pytest.mark.parametrize(
    ('command', 'sentence'),
    [
        ((['a', 'b'], [1, 1], 'voltage', 0.0), "takes 'torque'"),
        ((['a', 'b'], [1], 'torque', 0.0), '1 values for 2 joints'),
        ((['a', 'x'], [1, 1], 'torque', 0.0), "'x' is not driven"),
        ((['a'], [1], 'torque', 0.0), 'all driven joints'),
        ((['a', 'b'], [1, float('nan')], 'torque', 0.0), 'not finite'),
        ((['a', 'b'], [1, 1], 'torque', 0.5), '0.500 s old'),
    ],
)  # fmt: skip
def test_commands_that_are_wrong_or_old_never_reach_the_device(command, sentence):
    rig = Rig(script=[1] * 5)
    driver = Driver(rig)
    driver.poll(0.0)
    joints, values, kind, age = command
    assert not driver.command(joints, values, kind, 1, age) and sentence in driver.refusal
    driver.poll(0.0)
    assert rig.written == []


def test_commands_are_ordered_by_the_devices_joints_and_cut_to_its_limits_and_run_out():
    rig = Rig(script=[1] * 100)
    driver = Driver(rig, watchdog=Watchdog(command_timeout=0.05))
    driver.poll(0.0)
    assert driver.command(['b', 'a'], [-5.0, 0.5], 'torque', time.time_ns())
    told = [s for s in driver.poll(0.0) if s.topic == APPLIED]
    assert rig.written == [(0.5, -2.0)] and driver.clipped == 1 and told[0].parts[''] == (0.5, -2.0)
    time.sleep(0.06)
    told = [s for s in driver.poll(0.0) if s.topic == APPLIED]
    assert rig.stops == 1 and told[-1].parts[''] == (0.0, 0.0)


def test_stop_ends_the_excitation_and_puts_zero():
    rig = Rig(script=[1] * 100)
    driver = Driver(rig, excitation=Excitation('steps', amplitude=0.5, ramp=0.0, duration=9.0), joint='b')
    for _ in range(3):
        driver.poll(0.0)
    assert len(rig.written) == 3 and all(a == 0 and abs(b) == 0.5 for a, b in rig.written)
    assert not driver.command(['a', 'b'], [0.1, 0.1], 'torque', 1) and 'excitation is running' in driver.refusal
    driver.stop()
    driver.poll(0.0)
    driver.poll(0.0)
    assert rig.stops == 1 and len(rig.written) == 3 and not driver.exciting
    driver.close()
    assert rig.stops == 2 and rig.closed == 1


# The table of devices


def test_all_built_in_devices_can_be_loaded_and_wrong_names_and_options_are_named():
    assert {'simulated', 'serial', 'can', 'mujoco', 'replay', 'simulated_strain'} <= set(device_names())
    for name in devices.BUILT_IN:
        assert issubclass(load_device(name), Device)
    with pytest.raises(EstimationError, match="Did you mean 'simulated'"):
        load_device('simulatd')
    with pytest.raises(EstimationError, match="no option 'rte'.*Did you mean 'rate'"):
        make_device('simulated', ['rte=5'])
    with pytest.raises(EstimationError, match="needs a float for 'rate', not 'fast'"):
        make_device('simulated', {'rate': 'fast'})
    with pytest.raises(EstimationError, match='key=value'):
        make_device('simulated', ['rate'])
    assert make_device('simulated', ['rate=50', 'realtime=false', 'start=0.1,0.2']).start == (0.1, 0.2)


def test_other_packages_plug_devices_in_by_entry_points(monkeypatch):
    point = EntryPoint('rig', f'{__name__}:Rig', devices.GROUP)
    monkeypatch.setattr(devices, 'entry_points', lambda group: [point] if group == devices.GROUP else [])
    monkeypatch.setattr(EntryPoint, 'load', lambda self: Rig)
    assert 'rig' in device_names() and isinstance(make_device('rig', {'refuse': '2'}), Rig)


# The pace of simulated devices


def test_stamps_are_even_a_little_lateness_is_caught_up_and_a_long_sleep_is_skipped(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(pace.time, 'monotonic', lambda: clock[0])
    monkeypatch.setattr(pace.time, 'sleep', lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    steady = pace.Pace(100.0, realtime=True, epoch=10**18)
    assert [steady.wait(1.0) for _ in range(3)] == [10**18, 10**18 + 10_000_000, 10**18 + 20_000_000]
    assert abs(clock[0] - 100.02) < 1e-9 and steady.wait(0.001) is None
    clock[0] += 0.5
    late = [steady.wait(0.1) for _ in range(51)]
    assert np.allclose(np.diff(late), 10_000_000) and abs(clock[0] - 100.53) < 0.02
    clock[0] += 3600
    assert abs(steady.wait(0.1) - (10**18 + 3600_530_000_000)) < 50_000_000
    fast = pace.Pace(100.0, realtime=False, epoch=5)
    assert [fast.wait(0.0) for _ in range(2)] == [5, 10_000_005]
