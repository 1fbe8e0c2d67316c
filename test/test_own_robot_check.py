# SPDX-License-Identifier: Apache-2.0
"""`check` names what is wrong with a recording, and only that; what it says can be told is what `identify` then reaches."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation.window import Window

sys.path.insert(0, str(Path(__file__).parent))
import own_robot  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope='module')
def cases():
    """A bag of the Furuta pendulum, whose nominal model is 30 to 50 % off, and a MuJoCo recording of an arm with a passive joint."""
    arm = me.load_robot(own_robot.ROBOTS / 'two_joint_arm.yaml')
    return {
        'furuta': (me.robots.furuta(), me.read_bag(ROOT / 'rosbags' / 'furuta_chirp')),
        'arm': (arm, own_robot.simulate('two_joint_arm')),
    }


def changed(window: Window, change, name: str = 'encoders') -> Window:
    return Window.gather([change(s) if s.name == name else s for s in window.signals.values()])


def with_values(change):
    return lambda window: changed(window, lambda s: replace(s, values=change(s.values.copy())))


def column(k: int, change):
    def f(values):
        values[:, k] = change(values[:, k])
        return values

    return with_values(f)


def still(y):
    return 0.1 + 1e-4 * np.random.default_rng(0).standard_normal(len(y))


def without(begin: float, end: float):
    def cut(signal):
        t = (signal.stamps - signal.stamps[0]) * 1e-9
        return signal.take(~((t > begin) & (t < end)))

    return lambda window: changed(window, cut)


def clipped(signal):
    top = 0.5 * np.abs(signal.values).max()
    return replace(signal, values=np.clip(signal.values, -top, top))


MISTAKES = {
    'constant joint': (column(1, still), 'still', 'second', 'still'),
    '10 ms delay': (lambda w: changed(w, lambda s: replace(s, stamps=s.stamps - 10_000_000), 'command'), 'delay', 'first', '10.0 ms later'),
    'degrees': (with_values(np.degrees), 'degrees', 'both', 'degrees'),
    'degrees of one joint': (column(1, np.degrees), 'degrees', 'second', 'degrees'),
    'sign of the second joint': (column(1, np.negative), 'sign', 'second', 'opposite sign'),
    'sign of the first joint': (column(0, np.negative), 'sign', 'first', 'opposite sign'),
    'swapped': (with_values(lambda v: v[:, ::-1]), 'swap', 'both', 'swapped'),
    'saturated': (lambda w: changed(w, clipped, 'command'), 'saturation', 'first', 'stands at its limit'),
    'gap': (without(3.0, 3.5), 'gap', '', 'no sample for 0.5'),
}  # fmt: skip


@pytest.mark.parametrize('name', ['furuta', 'arm'])
def test_a_good_recording_has_no_findings(cases, name):
    found = me.check(*cases[name])
    assert found.findings == (), found
    assert 'Nothing is wrong' in str(found)


@pytest.mark.parametrize('mistake', MISTAKES)
@pytest.mark.parametrize('name', ['furuta', 'arm'])
def test_the_defect_is_named(cases, name, mistake):
    robot, window = cases[name]
    change, kind, where, words = MISTAKES[mistake]
    found = [f for f in me.check(robot, change(window)).findings if f.kind == kind]
    assert found, f'{kind} not among {me.check(robot, change(window)).findings}'
    joints = robot.model.joint_names
    expected = {'first': [joints[0]], 'second': [joints[1]], 'both': list(joints), '': []}[where]
    assert words in found[0].sentence.replace('10.1 ms', '10.0 ms').replace('9.9 ms', '10.0 ms'), found[0]
    assert all(j in found[0].sentence for j in expected), found[0]


@pytest.mark.parametrize('mistake', ['degrees', 'sign of the second joint', 'swapped', '10 ms delay'])
def test_no_other_mistake_is_claimed(cases, mistake):
    robot, window = cases['arm']
    change, kind, _, _ = MISTAKES[mistake]
    assert {f.kind for f in me.check(robot, change(window)).findings} == {kind}


def test_defects_have_their_place_in_time(cases):
    robot, window = cases['arm']
    gap = next(f for f in me.check(robot, without(3.0, 3.5)(window)).findings if f.kind == 'gap')
    assert '3.0' in gap.sentence and '0.5' in gap.sentence


def test_promised_deviations_are_those_of_the_fit(cases):
    """At the nominal model 30 % off, so within a factor; the fit's own are by the same algebra at its solution."""
    robot, window = cases['arm']
    told, fit = me.check(robot, window), me.identify(robot, window)
    ratio = np.array([p.std for p in told.parameters]) / fit.std
    assert (ratio > 0.2).all() and (ratio < 5).all(), ratio


def test_sums_that_cannot_be_told_apart_are_named(cases):
    robot, window = cases['arm']
    more = me.Parameter('forearm.mass', 0.3, lower=1e-3, scale=0.3, unit='kg')
    found = me.check(robot.with_parameters(*robot.parameters, more), window)
    assert any('forearm.mass' in sentence for sentence in found.groups), found.groups
    assert next(p for p in found.parameters if p.name == 'forearm.mass').verdict == 'not at all'


def test_the_verb_prints_the_table_and_ends_with_2_where_something_is_wrong(cases, tmp_path):
    robot, window = cases['arm']
    me.write_bag(tmp_path / 'bad', changed(window, lambda s: replace(s, values=-s.values), 'command'))
    line = [
        sys.executable,
        '-m',
        'multibody_estimation.cli',
        'check',
        str(own_robot.ROBOTS / 'two_joint_arm.yaml'),
        str(tmp_path / 'bad'),
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 2, done.stdout + done.stderr
    assert 'shoulder' in done.stdout and 'opposite sign' in done.stdout
