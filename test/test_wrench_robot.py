# SPDX-License-Identifier: Apache-2.0
"""The estimate in use: a pushed iCub in MuJoCo, one call per sample, setups in files, and input that is bad."""

import dataclasses

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation.errors import EstimationError
from multibody_estimation.tree import Joint, Link, build
from multibody_estimation.window import Signal, Window
from multibody_estimation.wrench import (
    Prior,
    WrenchEstimator,
    WrenchSensor,
    WrenchSetup,
    compile_wrench,
    estimate_wrenches,
    load_wrench_setup,
    locate_contact,
    observe,
    samples_of,
    save_wrench_setup,
    solve,
)
from multibody_estimation.wrench.dense import draw_samples
from multibody_estimation.wrench.setup_file import load_wrench, setup_from_dict

# ---- an arm with a force/torque sensor ------------------------------------------------------------------------------------------


def arm():
    """Base, upper arm, a force/torque sensor's fixed joint, forearm, hand."""
    I = (0.01, 0.012, 0.009)
    links = [Link('base', 5.0, (0, 0, 0.05), (0.1, 0.1, 0.1)), Link('upper', 1.5, (0, 0.02, 0.1), I), Link('below_ft', 0.5, (0, 0, 0.02), I),
             Link('forearm', 1.0, (0.01, 0, 0.1), I), Link('hand', 0.4, (0, 0, 0.04), (1e-3, 1e-3, 1e-3)), Link('tip')]  # fmt: skip
    joints = [Joint('shoulder', 'base', 'upper', axis=(0, 1, 0), position=(0, 0, 0.1)),
              Joint('ft_joint', 'upper', 'below_ft', 'fixed', position=(0, 0, 0.2)),
              Joint('elbow', 'below_ft', 'forearm', axis=(1, 0, 0), position=(0, 0, 0.05)),
              Joint('wrist', 'forearm', 'hand', axis=(0, 0, 1), position=(0, 0, 0.2)),
              Joint('tip_joint', 'hand', 'tip', 'fixed', position=(0, 0, 0.1))]  # fmt: skip
    return build(links, joints)


def arm_setup(**more):
    sensors = [WrenchSensor('ft', 'force_torque', 'ft_joint', (0.2, 0.2, 0.2, 0.01, 0.01, 0.01), gate=1e-5)]
    sensors += [
        WrenchSensor(f'acc_{x}', 'accelerometer', x, 0.05, (0.02, 0.01, 0.03), gate=1e-5) for x in ('upper', 'forearm', 'hand')
    ]
    sensors += [WrenchSensor(f'ddq_{j}', 'joint_acceleration', j, 0.2) for j in ('shoulder', 'elbow', 'wrist')]
    sensors += [WrenchSensor(f'tau_{j}', 'joint_torque', j, 0.05, gate=1e-5) for j in ('shoulder', 'elbow', 'wrist')]
    given = {'contacts': {'hand': Prior((20.0,) * 3 + (2.0,) * 3), 'base': Prior(100.0)}, 'joint_acceleration': {'*': Prior(5.0)}}
    return WrenchSetup(tuple(sensors), **(given | more))


@pytest.fixture(scope='module')
def run():
    model, setup = arm(), arm_setup()
    program = compile_wrench(model, setup)
    rng = np.random.default_rng(0)
    q, dq = 0.5 * rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    d, y = draw_samples(program, q, dq, np.zeros((40, 3)), seed=3)
    return model, setup, program, q, dq, d, y


def by_name(setup, y):
    return {name: y[at] for name, at in setup.rows.items()}


def test_one_call_per_sample_gives_what_the_batch_gives(run):
    model, setup, program, q, dq, _, y = run
    estimator = WrenchEstimator(model, setup)
    assert estimator.observability.complete
    batch = solve(program, q, dq, np.zeros((40, 3)), y, blocks=estimator.blocks)
    for k in (0, 7):
        sample = estimator.step(by_name(setup, y[k]), q[k], dq[k])
        np.testing.assert_allclose(sample.wrench('hand'), batch.wrench('hand')[k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(sample.joint_torques, batch.joint_torques[k], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            sample.covariance('external_wrench', 'hand'), batch.covariance('external_wrench', 'hand')[k], rtol=1e-7, atol=1e-12
        )
        assert not sample.missing and not sample.notes
        assert 'hand: force' in str(sample)


def test_a_wrench_may_be_asked_for_in_a_frame_without_mass(run):
    _, _, program, q, dq, _, y = run
    found = solve(program, q, dq, np.zeros((40, 3)), y, blocks=[('external_wrench', 'hand'), ('external_wrench', 'tip')])
    hand, tip = found.wrench('hand'), found.wrench('tip')
    np.testing.assert_allclose(tip[:, :3], hand[:, :3], atol=1e-12)  # parallel frames, 0.1 m apart
    np.testing.assert_allclose(tip[:, 3:], hand[:, 3:] - np.cross([0, 0, 0.1], hand[:, :3]), atol=1e-12)
    assert (found.deviation('external_wrench', 'tip')[:, 3] != found.deviation('external_wrench', 'hand')[:, 3]).all()


def test_an_outlier_is_left_out_with_its_size_and_the_estimate_is_as_without_the_sensor(run):
    model, setup, _, q, dq, _, y = run
    estimator = WrenchEstimator(model, setup)
    spoiled = by_name(setup, y[3])
    spoiled['acc_hand'] = spoiled['acc_hand'] + [0.0, 3.0, 0.0]
    sample = estimator.step(spoiled, q[3], dq[3])
    assert list(sample.outliers) == ['acc_hand']
    assert sample.outliers['acc_hand'] > 5
    assert 'acc_hand was left out' in sample.notes[0]
    without = {name: x for name, x in spoiled.items() if name != 'acc_hand'}
    np.testing.assert_allclose(sample.wrench('hand'), estimator.step(without, q[3], dq[3]).wrench('hand'), atol=1e-9)


def test_normalised_residuals_have_unit_size_and_few_good_samples_are_gated(run):
    model, _, _, q, dq, _, y = run
    setup = arm_setup()
    setup = setup.replace(sensors=tuple(dataclasses.replace(s, gate=1e-5) for s in setup.sensors))
    window = recording(setup, q, dq, y)
    estimate = estimate_wrenches(model, window, setup.replace(velocities='joint_velocities'))
    told = [size for size in estimate.misfit.values() if size > 0]
    assert 0.8 < np.sqrt(np.mean(np.square(told))) < 1.2
    assert sum(estimate.outliers.values()) <= 1


def recording(setup, q, dq, y, joints=('shoulder', 'elbow', 'wrist')):
    stamps = np.arange(len(q)) * 10_000_000
    signals = [Signal('encoders', stamps, q, joints, 'rad'), Signal('joint_velocities', stamps, dq, joints, 'rad/s')]
    signals += [Signal(name, stamps, y[:, at]) for name, at in setup.rows.items()]
    return Window.gather(signals)


def test_missing_sensors_and_nan_are_named_and_never_give_nan(run):
    model, setup, _, q, dq, _, y = run
    estimator = WrenchEstimator(model, setup)
    torn = by_name(setup, y[0])
    torn['ft'] = np.full(6, np.nan)
    del torn['tau_wrist']
    sample = estimator.step(torn, q[0], dq[0])
    assert set(sample.missing) == {'ft', 'tau_wrist'}
    assert any('ft gave no number' in n for n in sample.notes)
    assert np.isfinite(sample.wrench('hand')).all() and np.isfinite(sample.joint_torques).all()
    whole = estimator.step(by_name(setup, y[0]), q[0], dq[0])
    assert (sample.deviation('external_wrench', 'hand') > whole.deviation('external_wrench', 'hand')).all()
    with pytest.raises(EstimationError, match="position of 'elbow' is nan"):
        estimator.step(torn, [0.0, np.nan, 0.0], dq[0])
    with pytest.raises(EstimationError, match="no sensor 'ftt'.*Did you mean 'ft'"):
        estimator.step({'ftt': np.zeros(6)}, q[0], dq[0])
    with pytest.raises(EstimationError, match="'ft' gave 3 numbers; 6"):
        estimator.step({'ft': np.zeros(3)}, q[0], dq[0])


def test_contacts_change_at_run_time_and_what_cannot_be_told_is_said_in_words(run):
    model, setup, _, q, dq, _, y = run
    estimator = WrenchEstimator(model, setup)
    report = estimator.set_contacts(['hand', 'forearm', 'base'])
    assert not report.complete and report.variables - report.rank > 0
    assert "The external wrench of 'forearm' and the external wrench of 'hand' cannot be told apart" in str(report)
    sample = estimator.step(by_name(setup, y[0]), q[0], dq[0])
    assert any('cannot be told apart' in n for n in sample.notes)  # a named degraded result, with covariances that say so
    assert sample.deviation('external_wrench', 'hand')[0] > 20
    assert np.isfinite(sample.wrench('hand')).all()
    few = compile_wrench(model, setup.replace(sensors=setup.sensors[:1]))
    said = str(observe(few))
    assert "joint 'shoulder'" in said and 'priors alone' in said
    assert estimator.set_contacts({'hand': Prior(10.0), 'base': Prior(100.0)}).complete


def test_sensors_on_what_is_not_there_are_named():
    model = arm()
    cases = {
        "link 'foream'.*Did you mean 'forearm'": WrenchSensor('a', 'accelerometer', 'foream', 0.1),
        "joint 'elbo', which is no moving joint.*Did you mean 'elbow'": WrenchSensor('a', 'joint_torque', 'elbo', 0.1),
        "joint 'ft_joint', which is no moving joint.*fixed": WrenchSensor('a', 'joint_acceleration', 'ft_joint', 0.1),
        "joint 'ft', which is not there": WrenchSensor('a', 'force_torque', 'ft', 0.1),
        "is not at joint 'ft_joint'": WrenchSensor('a', 'force_torque', 'ft_joint', 0.1, acts_on='hand'),
    }
    for words, sensor in cases.items():
        with pytest.raises(EstimationError, match=words):
            compile_wrench(model, WrenchSetup((sensor,)))
    for words, fields in {
        "no link 'bas' to be the base": {'base': 'bas'},
        "contacts names link 'hnd'.*Did you mean 'hand'": {'contacts': {'hnd': Prior(1.0)}},
        "joint_acceleration names joint 'knee'": {'joint_acceleration': {'knee': Prior(1.0)}},
    }.items():
        with pytest.raises(EstimationError, match=words):
            compile_wrench(model, WrenchSetup((), **fields))


def test_noise_that_makes_no_sense_is_named():
    for words, noise in {
        'must be positive': 0.0,
        'must be finite': np.nan,
        '1 or 3 standard deviations': (1.0, 2.0),
        'positive definite': -np.eye(3),
        'not symmetric': np.triu(np.ones((3, 3))),
    }.items():
        with pytest.raises(EstimationError, match=words):
            WrenchSetup((WrenchSensor('a', 'accelerometer', 'hand', noise),))
    with pytest.raises(EstimationError, match="type 'acelerometer'.*Did you mean 'accelerometer'"):
        WrenchSetup((WrenchSensor('a', 'acelerometer', 'hand', 0.1),))
    with pytest.raises(EstimationError, match='two sensors have this name'):
        WrenchSetup((WrenchSensor('a', 'accelerometer', 'hand', 0.1), WrenchSensor('a', 'gyroscope', 'hand', 0.1)))


def test_covariance_between_links_is_refused_by_name_and_blocks_are_taken(run):
    model, setup, _, q, dq, _, y = run
    C = np.zeros((setup.size, setup.size))
    for s in setup.sensors:
        C[setup.rows[s.name], setup.rows[s.name]] = s.covariance()
    same = compile_wrench(model, setup.with_covariance(C))
    np.testing.assert_allclose(np.asarray(same.table), np.asarray(compile_wrench(model, setup).table), rtol=1e-9, atol=1e-12)
    i, j = setup.rows['acc_upper'].start, setup.rows['acc_hand'].start
    C[i, j] = C[j, i] = 1e-3
    with pytest.raises(EstimationError, match="couples sensor 'acc_upper' on 'upper' with sensor 'acc_hand' on 'hand'"):
        setup.with_covariance(C)


# ---- setups in files ------------------------------------------------------------------------------------------------------------


def test_a_setup_survives_its_file(tmp_path):
    model, setup = (
        arm(),
        arm_setup(
            base='upper', floating=True, acceleration={'*': Prior(30.0, 1.0)}, equation_noise={'*': 0.1, 'hand': np.eye(6) + 0.1}
        ),
    )
    again = load_wrench_setup(save_wrench_setup(setup, tmp_path / 'setup.yaml'), model)
    a, b = compile_wrench(model, setup), compile_wrench(model, again)
    assert a.layout == b.layout
    np.testing.assert_allclose(np.asarray(a.table), np.asarray(b.table), rtol=1e-12, atol=1e-12)
    assert [s.gate for s in again.sensors] == [s.gate for s in setup.sensors]


def test_errors_in_a_setup_name_file_line_and_key(tmp_path):
    path = tmp_path / 'my.yaml'
    for words, text in {
        "my.yaml line 2: there is no key 'contact'.*Did you mean 'contacts'": 'base: upper\ncontact: [hand]\n',
        "my.yaml line 3: there is no key 'nois' in sensors.a.*Did you mean 'noise'": 'sensors:\n  a:\n    nois: 1\n    type: accelerometer\n    on: hand\n',
        "sensor 'a' has no type": 'sensors:\n  a: {on: hand, noise: 1}\n',
        'either noise .* or covariance': 'sensors:\n  a: {type: skin, on: hand}\n',
        "line 2: sensors.a.noise is 'x'; numbers": 'sensors:\n  a: {type: skin, on: hand, noise: x}\n',
        "floating is 'maybe'": 'floating: maybe\n',
        'needs the robot': 'joint_sensors:\n  joint_torque: {noise: 1}\n',
        'not valid YAML': 'a: [\n',
        'a mapping': '- 1\n',
    }.items():
        path.write_text(text)
        with pytest.raises(EstimationError, match=words):
            load_wrench_setup(path)
    with pytest.raises(EstimationError, match='cannot be read'):
        load_wrench_setup(tmp_path / 'none.yaml')
    with pytest.raises(EstimationError, match='names no robot'):
        path.write_text('base: a\n')
        load_wrench(path)
    setup = setup_from_dict({'contacts': ['hand'], 'joint_sensors': {'joint_torque': {'noise': 0.1, 'signal': 'torques'}}}, arm())
    assert [s.on for s in setup.sensors] == ['shoulder', 'elbow', 'wrist']


def test_recordings_without_what_is_needed_are_named(run):
    model, setup, _, q, dq, _, y = run
    window = recording(setup, q, dq, y)
    with pytest.raises(EstimationError, match="no signal 'angles'"):
        estimate_wrenches(model, window, setup.replace(positions='angles'))
    with pytest.raises(EstimationError, match="no column for joint 'shoulder'"):
        estimate_wrenches(model, recording(setup, q, dq, y, ('a', 'elbow', 'wrist')), setup)
    with pytest.raises(EstimationError, match='None of the 10 sensors has a sample'):
        gone = setup.replace(
            velocities='joint_velocities',
            sensors=tuple(dataclasses.replace(s, signal='none') for s in setup.sensors if s.type != 'joint_acceleration'),
        )
        extra = tuple(WrenchSensor(f'x{k}', 'skin', 'hand', 1.0) for k in range(3))
        estimate_wrenches(model, window, gone.replace(sensors=gone.sensors + extra))
    part = Window.gather([s for name, s in window.signals.items() if name != 'tau_wrist'])
    estimate = estimate_wrenches(model, part, setup.replace(velocities='joint_velocities'))
    assert any("tau_wrist: the recording has no signal 'tau_wrist'" in n for n in estimate.notes)


# ---- the iCub -------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def push(tmp_path_factory):
    pytest.importorskip('mujoco')
    pytest.importorskip('icub_models')
    from importlib.resources import files

    from multibody_estimation.hardware.collect import collect
    from multibody_estimation.hardware.mujoco_icub import MujocoIcub, Push

    device = MujocoIcub(
        realtime=False, amplitude=0.15, pushes=(Push('l_forearm', 0.6, 1.0, (0.0, 20.0, 0.0)),), seed=1, epoch=10**9
    )
    window = collect(device, 2.2)
    model, setup = me.load_wrench(str(files('multibody_estimation.wrench') / 'icub.yaml'))
    return device, window, model, setup


def test_a_push_of_20_n_on_the_forearm_is_found_on_the_right_link_and_nowhere_else(push):
    device, window, model, setup = push
    estimate = me.estimate_wrenches(model, window, setup)
    assert estimate.observability.complete
    truth = window['truth/wrenches']
    pushed = (estimate.time > 0.7) & (estimate.time < 1.5)
    for link in estimate.links:
        k = device.links.index(link)
        true = truth.values[: len(estimate.time), 6 * k : 6 * k + 6]
        error = np.linalg.norm((estimate.wrench(link) - true)[:, :3], axis=1)
        if link == 'root_link':  # holds the weight of 325 N; its error is that of all other sensors together
            assert np.sqrt((error**2).mean()) < 2
        else:
            assert error.max() < 2, link
        if link == 'l_forearm':
            assert np.linalg.norm(true[pushed, :3], axis=1) == pytest.approx(20.0, rel=1e-6)
            assert np.linalg.norm(estimate.wrench(link)[pushed, :3], axis=1).mean() == pytest.approx(20.0, abs=0.5)
    assert 'l_forearm' in str(estimate) and sum(estimate.outliers.values()) == 0


def test_the_evidence_names_the_touched_arm(push):
    device, window, model, setup = push
    alone = setup.with_contacts(['root_link'])
    data = samples_of(compile_wrench(model, alone), window)
    at = (data.time > 0.8) & (data.time < 1.4) & (np.arange(len(data.time)) % 10 == 0)
    parts = (data.position[at], data.velocity[at], data.base_velocity[at], data.measurements[at])
    found = locate_contact(model, alone, ['l_forearm', 'r_forearm', 'l_lower_leg', 'head'], *parts)
    assert found.link == 'l_forearm' and found.probabilities['l_forearm'] > 0.999
    before = data.time < 0.5
    before &= np.arange(len(data.time)) % 10 == 0
    parts = (data.position[before], data.velocity[before], data.base_velocity[before], data.measurements[before])
    assert locate_contact(model, alone, ['l_forearm', 'r_forearm'], *parts).link == ''


def test_estimates_save_and_plot(push, tmp_path):
    _, window, model, setup = push
    estimate = me.estimate_wrenches(model, window.cut(0.0, 0.3), setup, blocks=[('external_wrench', 'l_forearm')])
    saved = np.load(estimate.save(tmp_path / 'wrenches.npz'))
    np.testing.assert_array_equal(saved['wrench/l_forearm'], estimate.wrench('l_forearm'))
    assert saved['covariance/l_forearm'].shape == (len(estimate.time), 6, 6)
    assert len(estimate.plot().axes) == 2
