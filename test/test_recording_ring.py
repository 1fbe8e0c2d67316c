# SPDX-License-Identifier: Apache-2.0
"""Ring buffers: what they hold, what they notice, that they do not grow, and that live equals offline."""

import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.bag_writer import BagWriter
from multibody_estimation.recording.definitions import typestore
from multibody_estimation.recording.ring import Ring, Rings

MS, START = 1_000_000, 1_700_000_000_000_000_000
TYPES = typestore().types


def test_the_last_samples_are_held_in_the_order_they_came():
    ring = Ring('x', ('a', 'b'), 5)
    for i in range(12):
        assert ring.append(START + i * MS, (i, -i)) == ''
    held = ring.signal()
    np.testing.assert_array_equal(held.values[:, 0], [7, 8, 9, 10, 11])
    np.testing.assert_array_equal(held.stamps, START + np.arange(7, 12) * MS)
    assert ring.status().received == 12 and abs(ring.status().rate - 1000) < 1e-6
    assert ring.signal(begin=START + 9 * MS, end=START + 11 * MS).values[:, 0].tolist() == [9, 10]


def test_gaps_duplicates_reordering_and_nan_are_noticed_as_they_come():
    ring = Ring('x', ('a',), 50)
    for i in range(10):
        ring.append(START + i * MS, (0.0,))
    assert ring.append(START + 9 * MS, (0.0,)) == 'duplicate'
    assert ring.append(START + 13 * MS, (0.0,)) == 'gap'
    assert ring.append(START + 12 * MS, (0.0,)) == 'reordered'
    assert ring.append(START + 14 * MS, (float('nan'),)) == 'nan'
    assert ring.append(START + 15 * MS, (float('-inf'),)) == 'nan'
    assert ring.append(START + 16 * MS, (0.0,)) == ''
    assert ring.append(START + 17 * MS, (0.0, 1.0)) == 'refused' and '2 values for 1 columns' in ring.status().refusal
    assert ring.append(0, (0.0,)) == 'refused'
    assert ring.status().defects == {'gap': 1, 'duplicate': 1, 'reordered': 1, 'nan': 2, 'jump': 0, 'refused': 2}


def test_a_clock_that_goes_back_starts_anew_and_one_wrong_stamp_does_not():
    ring = Ring('x', ('a',), 50)
    for i in range(10):
        ring.append(START + i * MS, (i,))
    assert ring.append(START + 3600 * 1000 * MS, (99,)) == 'jump'
    assert ring.append(START + 10 * MS, (10,)) == 'jump'
    assert ring.append(START + 11 * MS, (11,)) == ''
    assert ring.signal().values[:, 0].tolist() == list(range(12))  # the sample with the wrong stamp is gone, the others are not
    assert ring.append(START - 5000 * MS, (0,)) == 'jump'
    assert ring.signal().values[:, 0].tolist() == [0]
    assert ring.append(START - 4999 * MS, (1,)) == ''


def test_a_clock_that_leaps_ahead_for_good_goes_on():
    ring = Ring('x', ('a',), 50)
    found = [ring.append(START + (i + (10_000 if i > 5 else 0)) * MS, (i,)) for i in range(12)]
    assert found.count('jump') == 1 and len(ring.signal()) == 12


def test_names_in_another_order_are_sorted_and_unknown_ones_refused():
    ring = Ring('encoders', ('arm', 'pendulum'), 10)
    ring.append(START, (1, 2), ('arm', 'pendulum'))
    ring.append(START + MS, (2, 1), ('pendulum', 'arm'))
    assert ring.append(START + 2 * MS, (1, 2), ('arm', 'pendulun')) == 'refused'
    assert "Did you mean 'pendulum'" in ring.status().refusal
    assert ring.signal().values.tolist() == [[1, 2], [1, 2]]


def test_memory_stays_flat():
    rings = Rings(1.0, max_rate=1000)
    rings.add('x', ('a', 'b'))
    append = rings['x'].append
    row = [1.0, 2.0]
    for i in range(2000):
        append(START + i * MS, row)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(2000, 12000):
        append(START + i * MS, row)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000 and len(rings['x'].signal()) == rings.capacity


def test_a_reader_beside_a_writer_sees_whole_rows_only():
    ring = Ring('x', tuple('abcdef'), 400)
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set() and i < 200_000:
            i += 1
            ring.append(START + i * MS, [i] * 6)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            held = ring.signal()
            assert (held.values == held.values[:, :1]).all()
            assert (np.diff(held.stamps) == MS).all()
    finally:
        stop.set()
        thread.join()


def joint_state(i, name=('arm', 'pendulum'), position=None):
    stamp = START + i * 5 * MS
    head = TYPES['std_msgs/msg/Header'](TYPES['builtin_interfaces/msg/Time'](stamp // 10**9, stamp % 10**9), '')
    values = np.array([np.sin(0.1 * i), np.cos(0.1 * i)] if position is None else position, dtype=float)
    return TYPES['sensor_msgs/msg/JointState'](head, list(name), values, np.zeros(0), np.zeros(0))


def test_the_live_window_equals_the_window_of_the_bag(tmp_path):
    rng = np.random.default_rng(0)
    order = np.arange(300)
    order[100:103] = [102, 100, 101]
    order = np.concatenate([np.delete(order, rng.choice(300, 30, replace=False)), [299, 299]])
    rings = Rings(10.0)
    with BagWriter(tmp_path / 'bag') as bag:
        for k, i in enumerate(order):
            message = joint_state(int(i), position=[np.nan, 0] if k == 50 else None)
            rings.take('encoders', message.__msgtype__, message)
            bag.write_message('/joint_states', message, START + k)
    live, stored = rings.window(), me.read_bag(tmp_path / 'bag')
    np.testing.assert_array_equal(live['encoders'].stamps, stored['encoders'].stamps)
    np.testing.assert_array_equal(live['encoders'].values, stored['encoders'].values)
    assert [str(d) for d in live.defects] == [str(d) for d in stored.defects] and len(live.defects) > 25
    seen = rings.status()[0].defects
    assert seen['nan'] == 1 and seen['duplicate'] == 2 - (299 not in order[:-2]) and seen['reordered'] > 0 and seen['gap'] > 10


def test_the_last_seconds_of_signals_with_different_rates():
    rings = Rings(10.0)
    rings.add('slow', ('a',))
    rings.add('fast', ('a',))
    for i in range(2000):
        rings['fast'].append(START + i * MS, (i,))
        if i % 20 == 0:
            rings['slow'].append(START + i * MS, (i,))
    window = rings.window(0.5)
    assert len(window['fast']) == 501 and len(window['slow']) == 25 and window['slow'].values[0, 0] == 1500
    assert list(rings.window(0.5, signals=['slow'])) == ['slow']
    rings.clear()
    with pytest.raises(EstimationError, match='buffer is empty'):
        rings.window()


def test_messages_with_wrong_lengths_and_unknown_joints_are_refused_with_a_sentence():
    rings = Rings(1.0, joints=('arm', 'pendulum'))
    assert rings.take('encoders', 'sensor_msgs/msg/JointState', joint_state(0, ('arm', 'pendulun'))) == ['refused']
    assert "unknown joint 'pendulun'. Did you mean 'pendulum'" in rings.refusal
    assert rings.take('encoders', 'sensor_msgs/msg/JointState', joint_state(1, ('arm', 'pendulum'), [1.0])) == ['refused']
    assert '2 names for 1 entries of position' in rings.refusal
    assert rings.take('encoders', 'sensor_msgs/msg/JointState', joint_state(2)) == []
    assert rings.refused == {'encoders': 2}


def test_messages_without_a_header_take_the_time_of_reception():
    rings = Rings(1.0)
    rings.take('u', 'std_msgs/msg/Float64', SimpleNamespace(data=2.5), START + 7)
    assert rings['u'].signal().stamps.tolist() == [START + 7]
