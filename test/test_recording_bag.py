# SPDX-License-Identifier: Apache-2.0
"""Bags: what is written is what is read, by us and by libraries that were not written here; a killed recorder loses little."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer

import multibody_estimation as me
from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.definitions import interface_folder, make_typestore, typestore
from multibody_estimation.recording.topics import name_signals
from multibody_estimation.window import Signal, Window

ROOT = Path(__file__).resolve().parents[1]
START = 1_700_000_000_123_456_789
COUNT = 60
XYZ, SIX = ('x', 'y', 'z'), ('fx', 'fy', 'fz', 'tx', 'ty', 'tz')
TYPES = typestore().types


def stamps(count=COUNT, offset=0):
    return START + offset + np.arange(count) * 5_000_000


@pytest.fixture
def window():
    rng = np.random.default_rng(3)
    draw = rng.normal
    return Window.gather(
        [
            Signal('encoders', stamps(), draw(size=(COUNT, 2)), ('arm', 'pendulum'), 'rad', noise=(0.001, 0.002)),
            Signal('joint_velocities', stamps(), draw(size=(COUNT, 2)), ('arm', 'pendulum'), 'rad/s'),
            Signal('command', stamps(offset=7), draw(size=(COUNT, 1)), ('arm',), 'V'),
            Signal('imu/accelerometer', stamps(), draw(size=(COUNT, 3)), XYZ, 'm/s^2', frame='waist', noise=0.1),
            Signal('imu/gyroscope', stamps(), draw(size=(COUNT, 3)), XYZ, 'rad/s', frame='waist', noise=0.01),
            Signal('ft/left_arm/wrench', stamps(), draw(size=(COUNT, 6)), SIX, 'N, N m', frame='l_arm_ft'),
            Signal('ft/left_arm/strain', stamps(), np.round(1e3 * draw(size=(COUNT, 6))), SIX, 'counts', frame='l_arm_ft'),
            Signal('own', stamps(offset=3), draw(size=(COUNT, 2)), ('a', 'b')),
        ],
        truth={'arm.damping': 1.5e-3},
    )


def same(a: Signal, b: Signal):
    assert a.columns == b.columns and a.unit == b.unit and a.frame == b.frame
    np.testing.assert_allclose(a.noise, b.noise, rtol=1e-12)
    np.testing.assert_array_equal(a.stamps, b.stamps)
    np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.parametrize('compression', ['lz4', 'zstd', 'none'])
def test_a_window_comes_back_from_a_bag_bit_by_bit(window, tmp_path, compression):
    me.write_bag(tmp_path / 'bag', window, compression=compression)
    back = me.read_bag(tmp_path / 'bag')
    for name in window:
        same(window[name], back[name])
    assert back.truth == window.truth and not back.defects


def test_foreign_readers_find_the_standard_messages_and_our_definitions(window, tmp_path):
    me.write_bag(tmp_path / 'bag', window)
    with AnyReader([tmp_path / 'bag']) as reader:  # knows nothing of this package: types come from the file
        kinds = {c.topic: c.msgtype for c in reader.connections}
        assert kinds['/joint_states'] == 'sensor_msgs/msg/JointState'
        assert kinds['/applied_command'] == 'multibody_estimation/msg/ActuatorCommand'
        connection, _, raw = next(reader.messages([c for c in reader.connections if c.topic == '/applied_command']))
        command = reader.deserialize(raw, connection.msgtype)
        assert command.joint_names == ['arm'] and command.kind == command.VOLTAGE == 1
    with next((tmp_path / 'bag').glob('*.mcap')).open('rb') as stream:
        summary = make_reader(stream, validate_crcs=True).get_summary()
    assert {s.encoding for s in summary.schemas.values()} == {'ros2msg'}
    assert summary.statistics.message_count == 6 * COUNT  # velocities ride with positions, both halves of the IMU together


def test_metadata_says_what_ros2_bag_info_prints(window, tmp_path):
    me.write_bag(tmp_path / 'bag', window)
    info = yaml.safe_load((tmp_path / 'bag/metadata.yaml').read_text())['rosbag2_bagfile_information']
    assert info['storage_identifier'] == 'mcap' and info['message_count'] == 6 * COUNT
    assert info['starting_time']['nanoseconds_since_epoch'] == START
    assert (tmp_path / 'bag' / info['relative_file_paths'][0]).is_file()
    profile = yaml.safe_load(info['topics_with_message_count'][0]['topic_metadata']['offered_qos_profiles'])
    assert profile[0]['reliability'] == 1


def test_sqlite3_bags_written_by_the_rosbags_library_are_read(tmp_path):
    store = make_typestore()
    header, clock = store.types['std_msgs/msg/Header'], store.types['builtin_interfaces/msg/Time']
    with Writer(tmp_path / 'old', version=8, storage_plugin=StoragePlugin.SQLITE3) as bag:
        joints = bag.add_connection('/joint_states', 'sensor_msgs/msg/JointState', typestore=store)
        command = bag.add_connection('/command', 'multibody_estimation/msg/ActuatorCommand', typestore=store)
        for i in range(10):
            head = header(clock(5, i * 1_000_000), '')
            state = TYPES['sensor_msgs/msg/JointState'](head, ['arm'], np.array([0.1 * i]), np.zeros(0), np.zeros(0))
            bag.write(joints, 9_000_000_000 + i, store.serialize_cdr(state, state.__msgtype__))
            push = TYPES['multibody_estimation/msg/ActuatorCommand'](head, ['arm'], 0, np.array([float(i)]))
            bag.write(command, 9_000_000_000 + i, store.serialize_cdr(push, push.__msgtype__))
    window = me.read_bag(tmp_path / 'old')
    np.testing.assert_allclose(window['encoders'].values[:, 0], 0.1 * np.arange(10))
    assert window['encoders'].stamps[3] == 5_003_000_000  # header stamp, not the time of recording
    assert window['command'].unit == 'N m' and 'joint_velocities' not in window


def joint_state(stamp, names, position):
    head = TYPES['std_msgs/msg/Header'](TYPES['builtin_interfaces/msg/Time'](stamp // 10**9, stamp % 10**9), '')
    return TYPES['sensor_msgs/msg/JointState'](head, names, np.array(position, dtype=float), np.zeros(0), np.zeros(0))


def test_joint_names_in_another_order_and_of_other_publishers_are_sorted_out(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag:
        for i in range(4):
            bag.write_message('/joint_states', joint_state(START + 4 * i, ['a', 'b'], [i, -i]), START)
            bag.write_message('/joint_states', joint_state(START + 4 * i + 1, ['b', 'a'], [-i, i]), START)
        bag.write_message('/joint_states', joint_state(START + 50, ['gripper'], [9]), START)
    window = me.read_bag(tmp_path / 'bag')
    assert window['encoders'].columns == ('a', 'b') and len(window['encoders']) == 8
    np.testing.assert_array_equal(window['encoders'].column('a'), -window['encoders'].column('b'))
    assert window['encoders/gripper'].values.tolist() == [[9.0]]


def test_messages_that_do_not_fit_their_names_or_have_no_stamp_are_said(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag:
        for i in range(5):
            bag.write_message('/joint_states', joint_state(START + i, ['a'], [i]), START + i)
        bag.write_message('/joint_states', joint_state(START + 6, ['a', 'b'], [1]), START + 6)
        bag.write('/joint_states', 'sensor_msgs/msg/JointState', START + 7, b'\x00\x01\x00\x00rubbish')
        bag.write_message('/joint_states', joint_state(0, ['a'], [7]), START + 8)
    window = me.read_bag(tmp_path / 'bag')
    said = ' '.join(map(str, window.defects))
    assert len(window['encoders']) == 6 and window['encoders'].stamps[-1] == START + 8
    assert '2 messages could not be used' in said and '2 names for 1 entries of position' in said and 'no header stamp' in said


def test_signals_can_be_chosen_renamed_and_missing_ones_are_named(window, tmp_path):
    me.write_bag(tmp_path / 'bag', window)
    assert list(me.read_bag(tmp_path / 'bag', ['command', 'own'])) == ['own', 'command']
    other = me.read_bag(tmp_path / 'bag', {'motor': '/applied_command', 'base/gyro': '/imu/data_raw#angular_velocity'})
    same(Signal('command', *[getattr(other['motor'], f) for f in ('stamps', 'values', 'columns', 'unit')]), window['command'])
    np.testing.assert_array_equal(other['base/gyro'].values, window['imu/gyroscope'].values)
    with pytest.raises(EstimationError, match="no topic '/aplied_command'.*Did you mean '/applied_command'"):
        me.read_bag(tmp_path / 'bag', {'motor': '/aplied_command'})
    with pytest.raises(EstimationError, match="no signal 'encoder'.*Did you mean 'encoders'"):
        me.read_bag(tmp_path / 'bag', ['encoder'])
    with pytest.raises(EstimationError, match="no bag at .*Did you mean 'bag'"):
        me.read_bag(tmp_path / 'bagg')


def test_a_namespace_shared_by_all_topics_is_dropped_and_nested_ones_stay():
    joints, command, imu = 'sensor_msgs/msg/JointState', 'multibody_estimation/msg/ActuatorCommand', 'sensor_msgs/msg/Imu'
    assert name_signals({'/furuta/joint_states': joints, '/furuta/command': command, '/tf': 'tf2_msgs/msg/TFMessage'}) == {
        '/furuta/joint_states': 'encoders', '/furuta/command': 'command'}  # fmt: skip
    assert name_signals({'/a/command': command, '/a/applied_command': command}) == {
        '/a/command': 'requested_command', '/a/applied_command': 'command'}  # fmt: skip
    assert name_signals({'/joint_states': joints, '/estimator/joint_states': joints, '/waist/imu/data_raw': imu}) == {
        '/joint_states': 'encoders', '/estimator/joint_states': 'estimator/encoders', '/waist/imu/data_raw': 'waist/imu'}  # fmt: skip


CHILD = """
import sys, time
import numpy as np
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.definitions import typestore
types = typestore().types
bag = BagWriter(sys.argv[1], flush_every=0.5)
while True:
    now = time.time_ns()
    head = types['std_msgs/msg/Header'](types['builtin_interfaces/msg/Time'](now // 10**9, now % 10**9), '')
    bag.write_message('/joint_states', types['sensor_msgs/msg/JointState'](head, ['a'], np.ones(1), np.zeros(0), np.zeros(0)), now)
    print(now, flush=True)
    time.sleep(0.002)
"""


def test_kill_9_loses_at_most_the_last_second(tmp_path):
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, '-c', CHILD, str(tmp_path / 'bag')], stdout=subprocess.PIPE, env=environment, text=True
    )
    try:
        assert child.stdout.readline()  # it has begun
        time.sleep(2.3)
    finally:
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
        child.wait(timeout=10)
    written = [int(line) for line in rest.split('\n')[:-1]]
    window = me.read_bag(tmp_path / 'bag')
    got = window['encoders'].stamps
    assert 0 <= written[-1] - got[-1] < 1_000_000_000
    assert len(got) > 100 and set(written[: len(got) - 1]) <= set(got.tolist())  # nothing before the last flush is missing
    assert any('has no end' in str(d) for d in window.defects)
    (tmp_path / 'bag/metadata.yaml').unlink()
    assert len(me.read_bag(tmp_path / 'bag')['encoders']) == len(got)


@pytest.mark.parametrize('keep', [0.4, 0.8])
def test_a_file_cut_anywhere_is_read_up_to_the_cut(tmp_path, keep):
    with BagWriter(tmp_path / 'cut', compression='none') as bag:
        for i in range(400):
            bag.write_message('/joint_states', joint_state(START + i, ['a'], [i]), START + i)
            if i % 40 == 39:
                bag.flush()
    file = next((tmp_path / 'cut').glob('*.mcap'))
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data))])
    values = me.read_bag(tmp_path / 'cut')['encoders'].values[:, 0]
    assert 40 <= len(values) < 400 and len(values) % 40 == 0
    np.testing.assert_array_equal(values, np.arange(len(values)))


def test_definitions_are_found_in_an_installed_package(tmp_path):
    package = tmp_path / 'lib/python3.11/site-packages/multibody_estimation'
    package.mkdir(parents=True)
    with pytest.raises(EstimationError, match='Install the package again'):
        interface_folder(package)
    share = tmp_path / 'share/multibody_estimation/msg'
    share.mkdir(parents=True)
    (share / 'ActuatorCommand.msg').write_text('uint8 kind')
    assert interface_folder(package) == share


def test_writing_never_overwrites_and_says_unknown_types(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag, pytest.raises(EstimationError, match='cannot be recorded'):
        bag.write('/x', 'foo_msgs/msg/Bar', 1, b'')
    with pytest.raises(EstimationError, match='exists already'):
        BagWriter(tmp_path / 'bag')
    with pytest.raises(EstimationError, match='closed'):
        bag.write('/x', 'std_msgs/msg/Float64', 1, b'')
    with pytest.raises(EstimationError, match='no message that becomes a signal'):
        me.read_bag(tmp_path / 'bag')


FULL = """
import resource, sys, time
from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.bag_writer import BagWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
bag = BagWriter(sys.argv[1], compression='none', flush_every=0.02)
begin = time.monotonic()
k = 0
while not bag.failure and time.monotonic() - begin < 10:
    bag.write('/x', 'std_msgs/msg/Float64', 10**18 + k, b'\\0\\1\\0\\0' + bytes(8))
    k += 1
    if k % 20 == 0:
        time.sleep(0.001)
print(bag.failure)
try:
    bag.close()
except EstimationError as error:
    print(error)
"""


def test_a_full_disk_is_said_and_what_was_flushed_is_readable(tmp_path):
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    done = subprocess.run(
        [sys.executable, '-c', FULL, str(tmp_path / 'bag')], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout.count('What was flushed before is safe.') == 2, done.stdout + done.stderr
    window = me.read_bag(tmp_path / 'bag')
    assert len(window['x']) > 100 and any('has no end' in str(d) for d in window.defects)


def test_a_bag_split_into_several_files_is_one_window(window, tmp_path):
    me.write_bag(tmp_path / 'a', window.cut(0.0, 0.15))
    me.write_bag(tmp_path / 'b', window.cut(0.15, 9.0))
    folder = tmp_path / 'a'
    (tmp_path / 'b/b_0.mcap').rename(folder / 'a_1.mcap')
    information = yaml.safe_load((folder / 'metadata.yaml').read_text())
    inside = information['rosbag2_bagfile_information']
    other = yaml.safe_load((tmp_path / 'b/metadata.yaml').read_text())['rosbag2_bagfile_information']
    inside['relative_file_paths'] += ['a_1.mcap']
    inside['files'] += [{**other['files'][0], 'path': 'a_1.mcap'}]
    (folder / 'metadata.yaml').write_text(yaml.safe_dump(information))
    whole = me.read_bag(folder)
    (folder / 'metadata.yaml').unlink()
    for name in window:
        np.testing.assert_array_equal(whole[name].values, window[name].values)
        np.testing.assert_array_equal(me.read_bag(folder)[name].values, window[name].values)  # and without metadata


def test_a_damaged_file_gives_less_and_says_so_and_never_gives_wrong_numbers(tmp_path):
    with BagWriter(tmp_path / 'bag') as bag:
        for i in range(200):
            bag.write_message('/joint_states', joint_state(START + i, ['a'], [i]), START + i)
            if i % 20 == 19:
                bag.flush()
    file = next((tmp_path / 'bag').glob('*.mcap'))
    data, rng = file.read_bytes(), np.random.default_rng(0)
    whole = less = refused = 0
    for k in range(120):
        harmed = bytearray(data)
        at, size = int(rng.integers(len(data))), int(rng.integers(1, 100))
        harmed[at : at + (1 if k % 2 else size)] = rng.bytes(1 if k % 2 else size)
        file.write_bytes(bytes(harmed))
        try:
            window = me.read_bag(tmp_path / 'bag')
        except EstimationError:
            refused += 1
            continue
        got = window['encoders']
        np.testing.assert_array_equal(got.values[:, 0], got.stamps - START)
        assert len(got) == 200 or window.defects
        whole, less = whole + (len(got) == 200), less + (len(got) < 200)
    assert whole > 10 and less > 40 and refused < 30


def test_damaged_metadata_and_truth_are_no_reason_to_crash(window, tmp_path):
    me.write_bag(tmp_path / 'bag', window)
    for text in ('', '- 1', 'rosbag2_bagfile_information: 3', '\xff: [', 'rosbag2_bagfile_information: {custom_data: [1]}'):
        (tmp_path / 'bag/metadata.yaml').write_text(text)
        assert len(me.read_bag(tmp_path / 'bag')['encoders']) == COUNT
    (tmp_path / 'bag/truth.yaml').write_text('parameters: {a: b}')
    with pytest.raises(EstimationError, match='dotted names to numbers'):
        me.read_bag(tmp_path / 'bag')
    (tmp_path / 'bag/truth.yaml').write_text('a: [')
    with pytest.raises(EstimationError, match='is no YAML'):
        me.read_bag(tmp_path / 'bag')
