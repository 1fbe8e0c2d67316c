# SPDX-License-Identifier: Apache-2.0
"""The serial pendulum: protocol against its C++ twin, clock mapping, and the driver against a device on a pseudo-terminal."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip('serial', reason='pyserial is not installed')
pytest.importorskip('termios', reason='pseudo-terminals need a POSIX system')

from multibody_estimation import robots  # noqa: E402
from multibody_estimation.errors import EstimationError  # noqa: E402
from multibody_estimation.hardware import serial_protocol as protocol  # noqa: E402
from multibody_estimation.hardware.clock import ClockMap  # noqa: E402
from multibody_estimation.hardware.collect import collect, gather_samples  # noqa: E402
from multibody_estimation.hardware.device import Command, DeviceLost  # noqa: E402
from multibody_estimation.hardware.driver import Driver  # noqa: E402
from multibody_estimation.hardware.excitation import Excitation  # noqa: E402
from multibody_estimation.hardware.serial_emulator import SerialEmulator  # noqa: E402
from multibody_estimation.hardware.serial_furuta import SerialFuruta  # noqa: E402
from multibody_estimation.hardware.watchdog import State, Watchdog  # noqa: E402
from multibody_estimation.identification import identify  # noqa: E402
from multibody_estimation.window import Window  # noqa: E402

FIRMWARE = Path(__file__).resolve().parents[1] / 'docs/firmware/furuta'
SOME = protocol.State(513, 4_000_000_000, -70_000, 256, -1.5, 3)

# The protocol


def test_the_checksum_is_the_one_of_the_standard():
    assert protocol.crc16(b'123456789') == 0x29B1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=600))
def test_stuffed_bytes_hold_no_zero_and_come_back(data):
    stuffed = protocol.cobs_encode(data)
    assert 0 not in stuffed and protocol.cobs_decode(stuffed) == data


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(1, 30), max_size=20))
def test_frames_are_found_in_any_noise_however_it_is_cut(noise, cuts):
    stream = SOME.pack() + noise + b'\0' + SOME.pack()
    decoder, found, at = protocol.Decoder(), [], 0
    for size in [*cuts, len(stream)]:
        found += list(decoder.feed(stream[at : at + size]))
        at += size
    assert found[0] == SOME and found[-1] == SOME


def test_a_flipped_bit_anywhere_is_noticed():
    good = SOME.pack()
    for i in range(8 * (len(good) - 1)):
        bad = bytearray(good)
        bad[i // 8] ^= 1 << i % 8
        decoder = protocol.Decoder()
        assert list(decoder.feed(bytes(bad))) == [] and decoder.wrong + decoder.unknown >= 1


PROGRAM = r"""
#include <cstdio>
#include "furuta_protocol.h"
int main() {
  uint8_t out[80];
  furuta::State s = {513, 4000000000u, -70000, 256, -1.5f, 3};
  uint8_t n = furuta::pack(s, out);
  for (int i = 0; i < n; ++i) printf("%02x", out[i]);
  furuta::Info info = {7, 200, 2048, -4096, furuta::VOLTAGE, 6.0f, 100};
  printf("\n");
  n = furuta::pack(info, out);
  for (int i = 0; i < n; ++i) printf("%02x", out[i]);
  printf("\n");
  furuta::Receiver r;
  int c;
  while ((c = getchar()) != EOF)
    if (uint8_t type = r.push(c)) printf("%d %d %.6f\n", type, r.sequence, type == furuta::COMMAND ? r.value : 0.0);
  printf("wrong %u\n", r.wrong);
}
"""


@pytest.mark.skipif(shutil.which('g++') is None, reason='there is no C++ compiler')
def test_the_firmwares_protocol_agrees_with_ours(tmp_path):
    (tmp_path / 'a.cc').write_text(PROGRAM)
    build = ['g++', '-std=c++11', '-Wall', '-Wextra', '-Werror', f'-I{FIRMWARE}', 'a.cc', '-o', 'a']
    subprocess.run(build, cwd=tmp_path, check=True, timeout=60)
    sent = [protocol.hello(1), protocol.move(300, -0.25), b'\x01\x02\x03noise\0', protocol.move(9, float('nan')), protocol.stop(65535),
            b'\xff' * 200 + b'\0', protocol.move(301, 0.0)]  # fmt: skip
    done = subprocess.run([tmp_path / 'a'], input=b''.join(sent), capture_output=True, check=True, timeout=10)
    state, info, *rest = done.stdout.decode().split('\n')
    assert bytes.fromhex(state) == SOME.pack()
    assert bytes.fromhex(info) == protocol.Info(7, 1, 200, 2048, -4096, 'voltage', 6.0, 100).pack()
    assert rest[:-1] == ['17 1 0.000000', '16 300 -0.250000', '18 65535 0.000000', '16 301 0.000000', 'wrong 3']


# The clock


def test_stamps_follow_the_devices_clock_not_the_arrival():
    rng = np.random.default_rng(0)
    true = np.arange(4000) * 5_000_000 + 10**18
    device = ((true - 10**18) * (1 + 2e-5)).astype(np.int64) // 1000 + 2**32 - 3_000_000  # 20 ppm fast, wraps after 3 s
    arrival = true + 200_000 + (rng.exponential(2e6, 4000)).astype(np.int64)
    clock = ClockMap()
    stamps = np.array([clock.stamp(int(d) % 2**32, int(a)) for d, a in zip(device, arrival)])
    error = (stamps - true)[500:]
    assert clock.restarts == 0 and (np.diff(stamps) > 0).all()
    assert error.min() > 0 and error.max() < 1_000_000  # within 1 ms although arrivals scatter by 2 ms and more
    assert np.diff(stamps).std() < 0.1 * np.diff(arrival).std()


def test_once_settled_the_clock_has_no_steps():
    clock = ClockMap()
    arrival = [10**18 + k * 5_000_000 + (20_000_000 if k < 200 else 1_000_000) for k in range(2000)]  # a busy first second
    stamps = np.array([clock.stamp(k * 5000, a) for k, a in enumerate(arrival)])
    assert np.abs(np.diff(stamps) / 5e6 - 1).max() < 2e-3
    late = stamps - (10**18 + np.arange(2000) * 5_000_000)
    assert late[0] == 20_000_000 and late[-1] < 13_000_000 and (np.diff(late) <= 1000).all()  # on its way, slowly
    jump = clock.stamp(2000 * 5000, arrival[-1] + 5_000_000 - 500_000_000)
    assert abs(jump - stamps[-1]) < 10  # never back


def test_a_device_that_starts_anew_is_noticed():
    clock = ClockMap()
    before = [clock.stamp(3_000_000_000 + k * 5000, 10**18 + k * 5_000_000) for k in range(10)]
    after = [clock.stamp(k * 5000, 10**18 + 10**9 + k * 5_000_000) for k in range(10)]
    assert clock.restarts == 1 and after[0] > before[-1] and abs(after[5] - (10**18 + 10**9 + 25_000_000)) < 1_000_000


# The driver against a device


def until(condition, seconds=6.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
    return False


@pytest.fixture
def port(tmp_path):
    return tmp_path / 'ttyFuruta'


def test_angles_and_commands_go_through(port):
    with SerialEmulator(port) as emulator, SerialFuruta(str(port)) as device:
        samples = []
        device.write(Command((1.25,)))
        assert until(lambda: samples.extend(device.read(0.1)) or len(samples) > 100)
        assert emulator.received == [1.25] and device.info.rate == 200
    window = gather_samples(device.channels, samples)
    angles, applied = window['encoders'], window['command']
    np.testing.assert_allclose(angles.values * 2048 / (2 * np.pi), np.round(angles.values * 2048 / (2 * np.pi)), atol=1e-9)
    assert np.ptp(angles.column('pendulum')) > 0.1 and applied.unit == 'V'
    assert {0.0, 1.25} == set(applied.values[:, 0].tolist())  # ran out after 0.1 s, by the device's own watchdog
    assert device.counts['samples with a command that ran out'] > 0 and device.counts['frames lost'] == 0


def test_corrupted_bytes_cost_their_frames_and_nothing_else(port):
    with SerialEmulator(port, rate=500, corrupted=0.1, seed=4) as emulator, SerialFuruta(str(port), answer=5.0) as device:
        samples = []
        assert until(lambda: samples.extend(s for s in device.read(0.1) if s.topic == 'joint_states') or len(samples) > 400)
        damaged = emulator.damaged
    angles = np.array([s.parts[''] for s in samples])
    assert np.abs(np.diff(angles, axis=0)).max() < 0.05  # no wild value got through
    lost, wrong = (
        device.counts['frames lost'],
        device.counts['frames with a wrong checksum'] + device.counts['frames of unknown type'],
    )
    assert 10 < lost <= 1.3 * damaged + 5 and wrong > 10
    assert (np.diff([s.stamp for s in samples]) > 0).all()


def test_unplugged_and_plugged_in_again_the_driver_goes_on(port):
    emulator = SerialEmulator(port).plug()
    driver = Driver(SerialFuruta(str(port), answer=1.0), watchdog=Watchdog(shortest_pause=0.05, longest_pause=0.2))
    try:
        assert until(lambda: driver.poll(0.05) and driver.samples['joint_states'] > 20)
        emulator.unplug()
        begin = time.monotonic()
        assert until(lambda: driver.poll(0.05) == [] and driver.watchdog.state is State.LOST)
        assert time.monotonic() - begin < 3.0 and str(port) in driver.watchdog.reason
        assert until(lambda: driver.poll(0.05) == [] and 'cannot be opened' in driver.watchdog.reason)
        emulator.plug()
        before = driver.samples['joint_states']
        assert until(lambda: driver.poll(0.05) is not None and driver.samples['joint_states'] > before + 20)
        assert driver.watchdog.reconnects == 1 and driver.watchdog.state is State.RUNNING
    finally:
        driver.close()
        emulator.unplug()


def test_a_device_that_hangs_is_noticed_and_said_hello_again(port):
    with SerialEmulator(port) as emulator:
        driver = Driver(SerialFuruta(str(port)), watchdog=Watchdog(shortest_pause=0.05))
        assert until(lambda: driver.poll(0.05) and driver.samples['joint_states'] > 20)
        emulator.boot()  # a reset: silent until the next hello
        begin = time.monotonic()
        assert until(lambda: driver.poll(0.05) is not None and driver.watchdog.state is not State.RUNNING)
        assert time.monotonic() - begin < 3.0 and 'No sample' in driver.watchdog.reason
        assert until(lambda: driver.poll(0.05) is not None and driver.watchdog.reconnects == 1)
        assert until(lambda: bool(driver.poll(0.05)))
        driver.close()


def test_an_excitation_reaches_the_motor_and_closing_puts_zero(port):
    with SerialEmulator(port) as emulator:
        driver = Driver(SerialFuruta(str(port)), excitation=Excitation('sines', amplitude=2.0, duration=0.6, ramp=0.1))
        samples = []
        assert until(lambda: samples.extend(driver.poll(0.05)) or not driver.exciting)
        applied = [s for s in samples if s.topic == 'applied_command']
        assert len(emulator.received) > 10 and max(map(abs, emulator.received)) > 0.5
        told = np.array([s.parts[''][0] for s in applied])
        assert np.isin(told[told != 0], np.float32(emulator.received)).all()  # what the device says it did is what it was told
        driver.close()
        assert until(lambda: emulator._flags == 4 and emulator._value == 0.0)


def test_what_is_wrong_with_a_port_is_said(port, tmp_path):
    with pytest.raises(DeviceLost, match='cannot be opened'):
        SerialFuruta(str(tmp_path / 'nothing')).open()
    with pytest.raises(EstimationError, match='which port'):
        SerialFuruta().open()
    master, slave = os.openpty()
    with pytest.raises(DeviceLost, match='does not answer'):
        SerialFuruta(os.ttyname(slave), answer=0.3).open()
    os.close(master), os.close(slave)
    with SerialEmulator(port, kind='torque'), pytest.raises(EstimationError, match='set kind=torque'):
        SerialFuruta(str(port)).open()
    with SerialEmulator(port, version=2), pytest.raises(EstimationError, match='version 2'):
        SerialFuruta(str(port)).open()


def test_a_pendulum_on_a_serial_port_is_identified(port):
    """Everything between the microcontroller and the estimate: counts, device clock, applied volts, the driver's excitation."""
    with SerialEmulator(port):
        chirp = Excitation('chirp', amplitude=5.0, duration=5.0, low=0.5, high=3.0)
        window = collect(SerialFuruta(str(port)), 5.0, excitation=chirp)
    assert abs(len(window['encoders']) - 1000) < 20
    window = Window.gather([window[n].take(slice(0, 900)) for n in window])  # one shape, one compilation
    fit = identify(robots.furuta(drive='voltage', noise=2e-4, quantisation=2 * np.pi / 2048), window)
    truth = {p.name: p.start for p in robots.furuta(truth=True).parameters}
    truth['arm.damping'] -= 4e-4  # back-EMF of the drive, which the emulated motor does not have
    found = dict(zip(fit.names, fit.values))
    assert fit.converged
    for name, tolerance in {
        'arm_link.inertia.zz': 0.02,
        'rod.center_of_mass.z': 0.02,
        'arm.damping': 0.1,
        'arm.coulomb': 0.05,
    }.items():
        assert abs(found[name] / truth[name] - 1) < tolerance, name
