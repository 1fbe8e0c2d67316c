# SPDX-License-Identifier: Apache-2.0
"""The simulated robots: their motion against pinocchio and an adaptive integrator, their sensors against what they promise."""

import time

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from multibody_estimation import robots
from multibody_estimation.errors import EstimationError
from multibody_estimation.hardware.collect import collect
from multibody_estimation.hardware.device import Command
from multibody_estimation.hardware.driver import APPLIED, Driver
from multibody_estimation.hardware.excitation import Excitation
from multibody_estimation.hardware.simulated import Simulated
from multibody_estimation.hardware.watchdog import Watchdog

EPOCH = 1_700_000_000_000_000_000
SHAKE = Excitation('sines', amplitude=0.08, duration=1.5, low=0.5, high=2.0)


@pytest.fixture(scope='module')
def clean():
    device = Simulated(realtime=False, noise=0.0, epoch=EPOCH)
    return collect(device, 2.0, excitation=SHAKE)


def test_the_motion_is_that_of_pinocchio_with_an_adaptive_integrator(clean):
    pin = pytest.importorskip('pinocchio', reason='pinocchio is the oracle')
    p = {q.name: q.start for q in robots.furuta(truth=True).parameters}
    model = pin.Model()
    arm = model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), 'arm')
    rod = model.addJoint(arm, pin.JointModelRX(), pin.SE3(np.eye(3), np.array([p['pendulum.placement.x'], 0, 0])), 'pendulum')
    model.appendBodyToJoint(
        arm, pin.Inertia(0.2, np.zeros(3), np.diag([2e-3, 2e-3, p['arm_link.inertia.zz']])), pin.SE3.Identity()
    )
    inertia = np.diag([p['rod.inertia.xx'], p['rod.inertia.yy'], 4e-6])
    model.appendBodyToJoint(rod, pin.Inertia(0.1, np.array([0, 0, p['rod.center_of_mass.z']]), inertia), pin.SE3.Identity())
    level = pin.utils.rotate('x', p['gravity.tilt_x']) @ pin.utils.rotate('y', p['gravity.tilt_y'])
    model.gravity.linear = level @ np.array([0, 0, -9.81])
    data = model.createData()
    damping = np.array([p['arm.damping'], p['pendulum.damping']])
    dry = np.array([p['arm.coulomb'], p['pendulum.coulomb']])

    def rates(x, u):
        tau = np.array([u + p['command.offset'], 0.0]) - damping * x[2:] - dry * np.tanh(x[2:] / 0.05)
        return np.concatenate([x[2:], pin.aba(model, data, x[:2], x[2:], tau)])

    held = dict(zip(clean['command'].stamps.tolist(), clean['command'].values[:, 0]))
    x, u, expected = np.array([0, 0.4, 0, 0]), 0.0, []
    for stamp in clean['encoders'].stamps.tolist():
        expected.append(x[:2] + [0, p['encoders.offset.pendulum']])
        u = held.get(stamp, u)
        x = solve_ivp(lambda _, y, u=u: rates(y, u), (0, 0.005), x, rtol=1e-9, atol=1e-11).y[:, -1]
    np.testing.assert_allclose(clean['encoders'].values, expected, atol=2e-6)
    assert np.ptp(clean['encoders'].values, axis=0).min() > 0.3


def test_stamps_are_even_and_the_truth_is_told(clean):
    assert (np.diff(clean['encoders'].stamps) == 5_000_000).all() and clean.start == EPOCH
    assert clean['encoders'].columns == ('arm', 'pendulum') and clean['command'].columns == ('arm',)
    assert clean.truth['arm_link.inertia.zz'] == 2e-3 and not clean.defects


def test_noise_and_quantisation_are_as_stated(clean):
    step = 2 * np.pi / 2048
    counted = collect(Simulated(realtime=False, noise=0.0, quantisation=step, epoch=EPOCH), 2.0, excitation=SHAKE)['encoders']
    np.testing.assert_allclose(counted.values / step, np.round(counted.values / step), atol=1e-9)
    assert np.abs(counted.values - clean['encoders'].values).max() <= step / 2 + 1e-12
    noisy = collect(Simulated(realtime=False, noise=5e-3, epoch=EPOCH, seed=3), 2.0, excitation=SHAKE)['encoders']
    assert abs((noisy.values - clean['encoders'].values).std() / 5e-3 - 1) < 0.1 and noisy.noise == (5e-3, 5e-3)


def test_dropped_samples_are_gaps_not_shifts(clean):
    some = collect(Simulated(realtime=False, noise=0.0, dropped=0.2, epoch=EPOCH, seed=5), 2.0)
    free = collect(Simulated(realtime=False, noise=0.0, epoch=EPOCH), 2.0)
    kept = np.isin(free['encoders'].stamps, some['encoders'].stamps)
    assert 0.7 < kept.mean() < 0.9 and kept.sum() == len(some['encoders'])
    np.testing.assert_array_equal(free['encoders'].values[kept], some['encoders'].values)
    assert any(d.kind == 'gap' for d in some.defects)


def test_a_command_acts_its_delay_after_its_stamp():
    def first_difference(delay):
        pushed, free = (Simulated(realtime=False, noise=0.0, epoch=EPOCH, command_delay=delay) for _ in range(2))
        with pushed, free:
            pushed.read(0.0), free.read(0.0)
            pushed.write(Command((0.2,), EPOCH))
            for k in range(1, 30):
                if pushed.read(0.0)[0].parts != free.read(0.0)[0].parts:
                    return k
        return None

    assert first_difference(0.0) == 1 and first_difference(0.05) == 11


def test_real_time_means_real_time():
    device = Simulated(rate=200)
    with device:
        device.read(0.1)
        begin, stamps = time.monotonic(), []
        while time.monotonic() - begin < 0.5:
            stamps += [s.stamp for s in device.read(0.1)]
        elapsed = time.monotonic() - begin
        assert abs(len(stamps) - elapsed * 200) <= 20
        assert abs(stamps[-1] - time.time_ns()) < 300_000_000


def test_in_fast_mode_the_watchdog_lives_by_the_devices_clock():
    device = Simulated(realtime=False, epoch=EPOCH)
    driver = Driver(device, excitation=SHAKE)
    driver.poll()
    time.sleep(0.15)  # longer than the command's life, but no time has passed for the robot
    assert driver.poll()[-1].topic == APPLIED and 'zero torque' not in driver.refusal
    stamps = [s.stamp for _ in range(50) for s in driver.poll() if s.topic == APPLIED]
    assert (np.diff(stamps) > 0).all()


def test_a_robot_that_falls_silent_is_opened_again_and_goes_on():
    driver = Driver(Simulated(rate=200, stall_at=0.1), watchdog=Watchdog(stall_timeout=0.1, shortest_pause=0.02))
    begin = time.monotonic()
    while driver.watchdog.reconnects < 1 and time.monotonic() - begin < 8:
        driver.poll(0.05)
    before = driver.samples['joint_states']
    for _ in range(5):
        driver.poll(0.05)
    assert driver.watchdog.reconnects == 1 and driver.samples['joint_states'] > before


@pytest.mark.parametrize('name', ['qube', 'cart_pole', 'double_pendulum'])
def test_every_robot_of_the_table_moves(name):
    device = Simulated(name, realtime=False, epoch=EPOCH)
    window = collect(
        device, 0.3, excitation=Excitation('chirp', amplitude=1.0, duration=0.3, ramp=0.05) if device.actuators.joints else None
    )
    assert np.isfinite(window['encoders'].values).all() and window.truth


def test_nonsense_is_refused_in_words():
    for wrong, sentence in [
        ({'rate': 0.0}, 'rate is in Hz'),
        ({'robot': 'furutta'}, "Did you mean 'furuta'"),
        ({'start': (1.0,)}, 'start has 1'),
    ]:
        with pytest.raises(EstimationError, match=sentence):
            Simulated(**wrong)
