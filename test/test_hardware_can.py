# SPDX-License-Identifier: Apache-2.0
"""Strain boards on python-can's virtual bus: pairing of frames, losses, saturation, temperature, configuration."""

import time

import numpy as np
import pytest

can = pytest.importorskip('can', reason='python-can is not installed')

from multibody_estimation.errors import EstimationError  # noqa: E402
from multibody_estimation.hardware.can_strain import CanStrain, force_torque_frames, temperature_frame  # noqa: E402
from multibody_estimation.hardware.collect import gather_samples  # noqa: E402
from multibody_estimation.hardware.device import DeviceLost  # noqa: E402
from multibody_estimation.hardware.driver import Driver  # noqa: E402
from multibody_estimation.hardware.watchdog import State, Watchdog  # noqa: E402

START = 1_700_000_000.0


@pytest.fixture
def bus(request):
    with can.Bus(channel=request.node.name, interface='virtual', preserve_timestamps=True) as bus:
        yield bus


def device(request, **more):
    return CanStrain(request.node.name, 'virtual', **({'boards': ('13:l_arm_ft',), 'configure': False} | more))


def send(bus, at, frames):
    for k, (identifier, data) in enumerate(frames):
        bus.send(can.Message(arbitration_id=identifier, data=data, is_extended_id=False, timestamp=START + at + 2e-4 * k))


def test_two_frames_become_one_reading_bit_by_bit(bus, request):
    # Written out by hand from the description of the broadcast: class 3, address 13, types A and B, zero at 0x8000, little-endian.
    with device(request) as strain:
        send(bus, 0.0, [(0x3DA, bytes.fromhex('0080 0180 ff7f')), (0x3DB, bytes.fromhex('e803 18fc 0000'))])
        (sample,) = strain.read(0.2)
    assert sample.topic == 'ft/l_arm_ft/strain' and sample.stamp == 1_700_000_000_000_000_000
    assert sample.parts[''] == [0, 1, -1, -31768, 31768, -32768]
    assert sample.parts['/saturated'] == [0, 0, 0, 0, 1, 1]
    assert force_torque_frames(13, sample.parts[''])[0] == (0x3DA, bytes.fromhex('0080 0180 ff7f'))


def test_a_stream_of_two_boards_is_sorted_out(bus, request):
    rng = np.random.default_rng(0)
    counts = np.round(rng.uniform(-30000, 30000, (2, 50, 6)))
    with device(request, boards=('13:l_arm_ft', '2:r_foot_ft')) as strain:
        for k in range(50):
            a, b = force_torque_frames(13, counts[0, k]), force_torque_frames(2, counts[1, k])
            send(
                bus, 0.01 * k, [a[0], b[0], a[1], b[1], (0x213, b'\x07\x03'), (0x3C9, b'\0' * 6)]
            )  # interleaved, with foreign frames
        samples = [s for _ in range(3) for s in strain.read(0.05)]
    window = gather_samples(strain.channels, samples)
    np.testing.assert_array_equal(window['ft/l_arm_ft/strain'].values, counts[0])
    np.testing.assert_array_equal(window['ft/r_foot_ft/strain'].values, counts[1])
    assert not any(strain.counts.values()) and window['ft/l_arm_ft/strain'].frame == 'l_arm_ft'
    np.testing.assert_allclose(np.diff(window['ft/l_arm_ft/strain'].stamps), 10_000_000, atol=1000)


def test_lost_frames_never_marry_the_wrong_partner(bus, request):
    with device(request) as strain:
        for k in range(20):
            force, torque = force_torque_frames(13, [k] * 6)
            frames = {5: [force], 9: [torque], 13: []}.get(k, [force, torque])
            send(bus, 0.01 * k, frames)
        samples = strain.read(0.2)
    got = [s.parts[''] for s in samples]
    assert all(len(set(six)) == 1 for six in got)  # both halves of one reading
    assert [six[0] for six in got] == [float(k) for k in range(20) if k not in (5, 9, 13)]
    assert (
        strain.counts['torque frames lost'] == 1
        and strain.counts['force frames lost'] == 1
        and strain.counts['readings lost'] == 3
    )


def test_a_force_and_the_next_readings_torque_are_not_one(bus, request):
    with device(request) as strain:
        send(bus, 0.0, [force_torque_frames(13, [1] * 6)[0]])
        send(bus, 0.0102, [force_torque_frames(13, [2] * 6)[1]])
        assert strain.read(0.1) == []
    assert strain.counts['torque frames lost'] == 1 and strain.counts['force frames lost'] == 1


def test_saturation_is_told_by_the_seventh_byte_and_by_the_range(bus, request):
    with device(request) as strain:
        send(bus, 0.00, force_torque_frames(13, [0] * 6, saturated=[0, 2, 0, 0, 0, 1]))
        send(bus, 0.01, force_torque_frames(13, [0, 0, 32000, 0, 0, 0]))
        send(
            bus, 0.02, [(0x3DA, bytes.fromhex('0080 0080 0080 01')), force_torque_frames(13, [0] * 6)[1]]
        )  # the old boards' flag
        send(bus, 0.03, force_torque_frames(13, [0] * 6))
        saturated = [s.parts['/saturated'] for s in strain.read(0.2)]
    assert saturated == [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0] * 6]
    assert strain.counts['readings saturated'] == 3


def test_temperature_and_wrong_lengths(bus, request):
    with device(request) as strain:
        send(bus, 0.0, [temperature_frame(13, -12.3), *force_torque_frames(13, [5] * 6), (0x3DA, b'\0\1')])
        (sample,) = strain.read(0.2)
    assert sample.parts['/temperature'] == (-12.3,) and strain.counts['frames of wrong length'] == 1


def test_boards_are_configured_on_opening_and_silenced_on_closing(bus, request):
    strain = device(request, configure=True, period=20, boards=('13:l_arm_ft', '2:r_foot_ft'))
    strain.open()
    strain.close()
    seen = []
    while (message := bus.recv(0.05)) is not None:
        seen.append((message.arbitration_id, bytes(message.data)))
    start = [(0x20D, b'\x08\x14'), (0x20D, b'\x07\x03'), (0x202, b'\x08\x14'), (0x202, b'\x07\x03')]
    assert seen == [*start, (0x20D, b'\x07\x01'), (0x202, b'\x07\x01')]


def test_calibrated_boards_give_wrenches(bus, request):
    strain = device(request, calibrated=True, full_scale=(1000.0, 1000.0, 2000.0, 50.0, 50.0, 40.0))
    with strain:
        send(bus, 0.0, force_torque_frames(13, [16384, -16384, 8192, 0, 16384, -8192]))
        (sample,) = strain.read(0.2)
    np.testing.assert_allclose(sample.parts[''], [500, -500, 500, 0, 25, -10])
    assert strain.channels[0].message_type == 'geometry_msgs/msg/WrenchStamped' and sample.topic == 'ft/l_arm_ft/wrench'


def test_a_silent_bus_is_noticed_and_opened_again(bus, request):
    driver = Driver(device(request), watchdog=Watchdog(stall_timeout=0.1, first_timeout=0.2, shortest_pause=0.02))
    driver.poll(0.01)
    send(bus, 0.0, force_torque_frames(13, [1] * 6))
    end = time.monotonic() + 3
    while driver.watchdog.state is not State.RUNNING and time.monotonic() < end:
        driver.poll(0.05)
    assert driver.samples['ft/l_arm_ft/strain'] == 1
    while driver.watchdog.reconnects < 1 and time.monotonic() < end:
        driver.poll(0.02)
    send(bus, 1.0, force_torque_frames(13, [2] * 6))
    while driver.samples['ft/l_arm_ft/strain'] < 2 and time.monotonic() < end:
        driver.poll(0.02)
    assert driver.watchdog.reconnects >= 1 and driver.samples['ft/l_arm_ft/strain'] == 2
    driver.close()


def test_what_is_wrong_is_said():
    for options, sentence in [
        ({'boards': ('l_arm',)}, 'is no board'),
        ({'boards': ('1:a', '1:b')}, 'given twice'),
        ({'period': 0}, '1 to 210'),
    ]:
        with pytest.raises(EstimationError, match=sentence):
            CanStrain(**options)
    with pytest.raises(DeviceLost, match='cannot be opened'):
        CanStrain('can77', 'socketcan').open()
    with pytest.raises(DeviceLost, match='not open'):
        CanStrain().read(0.0)
