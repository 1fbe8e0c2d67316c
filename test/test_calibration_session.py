# SPDX-License-Identifier: Apache-2.0
"""A technician's session: gating, samples, computing, saving, taring; from a recording the same numbers; the command line."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from multibody_estimation.calibration import Calibration, Load, StrainSensor, calibrate_force_torque
from multibody_estimation.calibration.gating import Gates, datasets_of, static_stretches, why_not_static
from multibody_estimation.calibration.guide import instruction, next_direction, what_next, worth_taking
from multibody_estimation.calibration.model import GRAVITY, gravity_map
from multibody_estimation.calibration.offline import Plan, Stretch, collect, find_signals, parse_load, read_plan, rotation_matrix
from multibody_estimation.calibration.planner import sphere_points
from multibody_estimation.calibration.quality import compare_with_factory, held_out, quality
from multibody_estimation.calibration.readings import Readings
from multibody_estimation.calibration.robot_file import robot_xml, save_robot_xml
from multibody_estimation.calibration.session import (
    Session,
    advice,
    compute,
    keep_samples,
    load,
    nearest,
    newest,
    remove,
    resume,
    safe_path,
    save,
    take,
    take_between,
    tare,
)  # fmt: skip
from multibody_estimation.calibration.simulated import simulated_session
from multibody_estimation.errors import EstimationError
from multibody_estimation.window import Window

LOADS = (Load(), Load(1.0, (0.1, 0, 0.05)), Load(0.8, (0, 0.1, 0.05)), Load(2.0, (-0.1, 0, 0.1)))
SENSOR = StrainSensor.random(2, full_scale_force=300.0, full_scale_torque=20.0)
STRAIN = 'ft/wrist/strain'
DIRECTIONS = sphere_points(9)[[4, 0, 8, 2, 6, 1, 5, 3, 7]]


def record(what, seed=0, **more):
    return simulated_session(SENSOR, what, DIRECTIONS, np.random.default_rng(seed), name=STRAIN, **more)


@pytest.fixture(scope='module')
def windows():
    return {what: record(what, seed, start=(1 + 100 * seed) * 10**9) for seed, what in enumerate(LOADS)}


@pytest.fixture(scope='module')
def full(windows):
    """A session with every static stretch of every load."""
    session = Session('SG7')
    for what, window in windows.items():
        session = collect(session, Readings.of(window, STRAIN, 'imu'), Plan((Stretch(str(what), what, 0, 2**62),), seconds=0.8))
    return session


@pytest.fixture(scope='module')
def done(full):
    return compute(full)


def still(count=100, up=(0, 0, 1.0), what=LOADS[0], seed=0, stop=None):
    window = simulated_session(SENSOR, what, np.array([up]), np.random.default_rng(seed), name=STRAIN, hold=count / 100)
    return Readings.of(window, STRAIN, 'imu', serial='SG7')


def test_stretches_found_are_the_orientations_held(windows):
    r = Readings.of(windows[LOADS[1]], STRAIN, 'imu')
    spans = static_stretches(r, 0.8)
    assert len(spans) == len(DIRECTIONS)
    ups = np.array([r.between(*span).acceleration.mean(axis=0) for span in spans]) / GRAVITY
    np.testing.assert_allclose(ups, DIRECTIONS, atol=0.02)


@pytest.mark.parametrize(
    ('sentence', 'change'),
    {
        'turns at': lambda r: replace(r, angular_velocity=r.angular_velocity + [0, 0.2, 0]),
        'instead of 9.81': lambda r: replace(r, acceleration=1.1 * r.acceleration),
        'accelerometer scatters': lambda r: replace(r, acceleration=r.acceleration + np.sin(np.arange(100))[:, None]),
        'strain scatters': lambda r: replace(r, strain=r.strain + 100 * np.sin(np.arange(100))[:, None]),
        'strain shifts': lambda r: replace(r, strain=r.strain + np.linspace(0, 60, 100)[:, None]),
        'accelerometer shifts': lambda r: replace(r, acceleration=r.acceleration + np.linspace(0, 0.3, 100)[:, None] * [1, 0, 0]),
        'Channel 3 is saturated': lambda r: replace(r, saturated=r.saturated | (np.arange(6) == 3)),
        'Channel 5 is saturated .32767': lambda r: replace(r, strain=np.where(np.arange(6) == 5, 32767, r.strain)),
        'Only 0 IMU readings': lambda r: replace(
            r, imu_stamps=r.imu_stamps[:0], acceleration=r.acceleration[:0], angular_velocity=r.angular_velocity[:0]
        ),
        'not finite': lambda r: replace(r, strain=np.where(np.arange(6) == 5, np.nan, r.strain)),
    }.items(),
)
def test_what_is_not_at_rest_is_said(sentence, change):
    good = still()
    assert why_not_static(good) == ''
    assert sentence.split('.')[0] in why_not_static(change(good))
    with pytest.raises(EstimationError, match=sentence):
        take_between(Session(), change(good), 0, 2**62, Load())


def test_moving_sample_is_refused_and_nothing_is_stored(windows):
    r = Readings.of(windows[LOADS[0]], STRAIN, 'imu')
    session = Session('SG7')
    with pytest.raises(EstimationError, match='turns at'):
        take_between(session, r, int(r.strain_stamps[100]), int(r.strain_stamps[200]), Load())
    assert session.samples == ()


def test_buffer_of_a_node_and_window_of_a_bag_give_the_same_readings(windows):
    window = windows[LOADS[1]]
    direct = Readings.of(window, STRAIN, 'imu')
    s, a, w = window[STRAIN], window['imu/accelerometer'], window['imu/gyroscope']
    rows = [(int(t), v, np.zeros(6, bool), 25.0) for t, v in zip(s.stamps, s.values)]
    rows = rows[:5] + [rows[4]] + [rows[6], rows[5]] + rows[7:] + [(1, np.full(6, np.nan), np.zeros(6, bool), 25.0)]
    imu = [(int(t), x, y) for t, x, y in zip(a.stamps, a.values, w.values)]
    gathered = Readings.gather(rows, imu)
    for name in ('strain_stamps', 'strain', 'imu_stamps', 'acceleration', 'angular_velocity', 'temperature', 'saturated'):
        np.testing.assert_array_equal(getattr(gathered, name), getattr(direct, name))


def test_imu_mounted_otherwise_is_turned_into_the_sensor(windows):
    q = np.array([0.3, -0.2, 0.5, 0.7])
    R = rotation_matrix(q)
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
    window = windows[LOADS[0]]
    turned = [replace(s, values=s.values @ R) if s.name.startswith('imu') else s for s in window.signals.values()]
    r = Readings.of(Window.gather(turned), STRAIN, 'imu', R)
    np.testing.assert_allclose(r.acceleration, window['imu/accelerometer'].values, atol=1e-12)
    with pytest.raises(EstimationError, match='quaternion'):
        rotation_matrix([0, 0, 0])


def test_session_takes_lists_removes(windows):
    session, first = take(Session('SG7'), still(), 0.5, Load())
    session, second = take(session, still(up=(1.0, 0, 0)), 0.5, Load())
    assert [s.number for s in session.samples] == [1, 2] and first.count == 50
    assert nearest(session, second) == (pytest.approx(90, abs=1), 1)
    smaller, gone = remove(session, 1)
    assert [s.number for s in smaller.samples] == [2] and gone == (first,)
    again, third = take(smaller, still(up=(0, 1.0, 0)), 0.5, Load())
    assert third.number == 3 and remove(again)[1] == (third,) and remove(again, dataset='empty')[0].samples == ()
    for sentence, call in {
        'no sample 9': lambda: remove(session, 9),
        "no dataset 'emty'. Did you mean 'empty'": lambda: remove(session, dataset='emty'),
        'no sample to remove': lambda: remove(Session()),
        "'empty' was begun with empty": lambda: take(session, still(), 0.5, LOADS[1], 'empty'),
        'stamps of the strain are 2.00 s ahead of those of the IMU': lambda: take(
            session, replace(still(), strain_stamps=still().strain_stamps + 2 * 10**9), 0.5, Load()
        ),
        'positive time': lambda: take(session, still(), 0.0, Load()),
        'from sensor .SG7., but this session is of .SG8.': lambda: take(Session('SG8'), still(), 0.5, Load()),
    }.items():
        with pytest.raises(EstimationError, match=sentence):
            call()


def test_advice_says_what_is_missing(full):
    assert advice(Session()).sentences == ('There are no samples yet. Start with the empty body.',)
    few = replace(full, samples=full.samples[:2])
    assert "'empty' has 2 of at least four orientations: take 2 more." in str(advice(few))
    one = replace(full, samples=tuple(s for s in full.samples if s.load in LOADS[:2]))
    assert 'second mass whose centre is not on the line' in str(advice(one))
    assert advice(full).enough and 'enough' in str(advice(full))


def test_computed_calibration_is_right_within_its_standard_deviations(done):
    off = np.concatenate([(done.calibration.matrix - SENSOR.matrix).T.ravel(), done.calibration.body - SENSOR.body])
    sigmas = off / np.sqrt(np.diag(done.calibration.covariance))
    assert 0.6 < np.sqrt(np.mean(sigmas**2)) < 1.6
    force, torque = done.quality.overall
    assert 0 < force < 0.1 and 0 < torque < 0.01 and not done.quality.seen
    assert 'not seen' in done.calibration.notes[-1]


def test_four_orientations_of_three_loads_suffice(full):
    few = [s for what in LOADS[:3] for s in [s for s in full.samples if s.load == what][:4]]
    result = compute(replace(full, samples=tuple(few)))
    assert result.quality is None
    np.testing.assert_allclose(result.calibration.body[0], SENSOR.body[0], rtol=0.05)


def test_what_fails_leaves_the_earlier_calibration_in_force(done):
    broken = replace(done, samples=done.samples[:3])
    with pytest.raises(EstimationError, match='at least four orientations'):
        compute(broken)
    assert broken.calibration is done.calibration
    for samples, sentence in (
        ([s for s in done.samples if s.load in LOADS[:2]], 'second mass'),
        ([replace(s, strain=s.strain[[3, 1, 2, 0, 4, 5]]) if s.load == LOADS[2] else s for s in done.samples], 'channels 0 and 3 look swapped'),
    ):  # fmt: skip
        with pytest.raises(EstimationError, match=sentence):
            compute(replace(done, samples=tuple(samples)))


def test_mass_with_the_wrong_sign(done):
    with pytest.raises(EstimationError, match='positive'):
        take(Session(), still(), 0.5, Load(-1.0, (0.1, 0, 0)))
    flipped = Load(0.8, (0, -0.1, -0.05))
    samples = [replace(s, load=flipped) if s.load == LOADS[2] else s for s in done.samples]
    with pytest.raises(EstimationError, match='wrong sign'):
        compute(replace(done, samples=tuple(samples)))


def test_saved_calibration_is_found_again_by_serial_and_date(done, tmp_path):
    path = save(done, tmp_path)
    assert path.parent == tmp_path.resolve() and path.name.startswith('SG7_20')
    later = replace(done, calibration=replace(done.calibration, date='2099-01-01T00:00:00+00:00'))
    newer = save(later, tmp_path, 'newer')
    save(replace(done, serial='other', calibration=replace(done.calibration, serial='other', date='2100')), tmp_path, 'other')
    (tmp_path / 'notes.yaml').write_text('a: 1')
    assert newest(tmp_path, 'SG7') == newer and newest(tmp_path, 'unknown') is None
    again = load(Session('SG7'), path)
    np.testing.assert_array_equal(again.calibration.matrix, done.calibration.matrix)
    with pytest.raises(EstimationError, match="calibration of sensor 'SG7', but the sensor here is 'SG9'"):
        load(Session('SG9'), path)
    document = yaml.safe_load(path.read_text())
    assert document['serial'] == 'SG7' and document['date'] and len(document['samples']) == len(done.samples)
    assert np.shape(document['covariance']) == (40, 40) and len(document['residuals']) == len(LOADS)


@pytest.mark.parametrize('name', ['../outside.yaml', '/outside.yaml', 'a/../../outside', '.', 'link/x.yaml'])
def test_saving_outside_the_data_folder_is_refused(done, tmp_path, name):
    folder = tmp_path / 'data'
    folder.mkdir()
    (folder / 'link').symlink_to(tmp_path)
    with pytest.raises(EstimationError, match='outside the data folder'):
        save(done, folder, name)
    assert list(tmp_path.glob('**/*.yaml')) == []


def test_saving_never_overwrites_what_is_no_calibration(done, tmp_path):
    (tmp_path / 'robot.yaml').write_text('urdf: a.urdf')
    with pytest.raises(EstimationError, match='not overwritten'):
        save(done, tmp_path, 'robot.yaml')
    assert (tmp_path / 'robot.yaml').read_text() == 'urdf: a.urdf'
    assert save(done, tmp_path, 'mine') == save(done, tmp_path, 'mine.yaml')
    with pytest.raises(EstimationError, match='nothing|no calibration in force'):
        save(Session(), tmp_path)
    (tmp_path / 'sub').mkdir()
    assert safe_path(tmp_path, 'sub/x', '') == (tmp_path / 'sub' / 'x.yaml').resolve()


def test_samples_survive_a_crash(full, tmp_path):
    assert resume(Session('SG7'), tmp_path).samples == ()
    path = keep_samples(full, tmp_path)
    again = resume(Session('SG7'), tmp_path)
    assert again.last_number == full.last_number and newest(tmp_path, 'SG7') is None
    np.testing.assert_array_equal(compute(again).calibration.covariance, compute(full).calibration.covariance)
    path.write_text('samples: [{number: 1}]')
    with pytest.raises(EstimationError, match='damaged'):
        resume(Session('SG7'), tmp_path)


def test_imu_without_gyroscope_is_judged_by_its_accelerometer(windows):
    window = windows[LOADS[0]]
    without = Window.gather([s for s in window.signals.values() if s.name != 'imu/gyroscope'])
    spans = static_stretches(Readings.of(without, STRAIN, 'imu'), 0.8)
    assert len(spans) == len(DIRECTIONS)


def test_damaged_files_are_sentences(done, tmp_path):
    path = save(done, tmp_path, 'x')
    text = path.read_text()
    for damage, sentence in (
        ('matrix:', "key 'matrix' is missing"),
        ('kind: force', 'no calibration file'),
        ('format: 1', 'format'),
    ):
        path.write_text(text.replace(damage, damage.replace('m', 'z').replace('k', 'q').replace('1', '7')))
        with pytest.raises(EstimationError, match=sentence):
            load(Session(), path)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(EstimationError):
        load(Session(), path)
    with pytest.raises(EstimationError, match='cannot be read'):
        load(Session(), tmp_path / 'none.yaml')


def test_tare_takes_up_a_moved_offset_and_keeps_the_weight(done):
    moved = np.array([100.0, -50, 30, 20, -80, 60])
    readings = replace(still(up=(0.3, 0.5, 0.8), seed=5), strain=still(up=(0.3, 0.5, 0.8), seed=5).strain + moved)
    tared = tare(done, readings, 0.8)
    np.testing.assert_allclose(tared.calibration.offset - done.calibration.offset, moved, atol=8)
    a = readings.acceleration.mean(axis=0) - done.calibration.accelerometer_bias
    w = tared.calibration.wrench(readings.strain).mean(axis=0)
    np.testing.assert_allclose(w, gravity_map(done.calibration.body) @ a, atol=0.1)
    np.testing.assert_allclose(tared.calibration.compensated(w, readings.acceleration.mean(axis=0)), 0, atol=0.1)
    zero = tare(tared, readings, 0.8, to_zero=True)
    np.testing.assert_allclose(zero.calibration.wrench(readings.strain).mean(axis=0), 0, atol=0.15)
    assert sum(n.startswith('Tared') for n in zero.calibration.notes) == 1
    with pytest.raises(EstimationError, match='no calibration in force'):
        tare(Session(), readings, 0.8)


def test_guide_spreads_orientations_and_follows_the_plan(done):
    session, taken = Session('SG7'), []
    for k in range(6):
        u = next_direction(session, Load())
        assert worth_taking(session.samples, 'empty', u, 30.0) == 0
        session, s = take(session, still(up=u, seed=k), 0.5, Load())
        assert worth_taking(session.samples, 'empty', s.acceleration, 30.0) == pytest.approx(30)
        taken.append(u)
    # Any two of six directions apart by more than 45 degrees: no two alike, and the sphere is covered.
    assert np.max(np.array(taken) @ np.array(taken).T - 2 * np.eye(6)) < np.cos(np.radians(45))
    u = next_direction(done, LOADS[3])
    assert np.linalg.norm(u) == pytest.approx(1)
    assert 'degrees away' in instruction(u, np.array([0, 0, 9.8])) and 'mostly +z' in instruction(np.array([0, 0, 1.0]), None)


def test_held_out_error_is_honest():
    """Held-out RMS equals the RMS on a fresh recording of the same kind, and exceeds that of the fit."""
    rng = np.random.default_rng(4)
    from multibody_estimation.calibration.simulated import random_orientations

    sensor = StrainSensor.random(1, strain_noise=5.0, acceleration_noise=0.02)
    train, fresh = ([sensor.dataset(what, random_orientations(n, rng), rng) for what in LOADS] for n in (12, 200))
    fit = calibrate_force_torque(train)
    inside, unseen, new = quality(fit, train, seen=True), held_out(train, calibrate_force_torque), quality(fit, fresh)
    for k in (0, 1):
        assert inside.overall[k] < unseen.overall[k]
        assert 0.75 < unseen.overall[k] / new.overall[k] < 1.4
    assert np.all(new.sphere < 0.02 * new.full_force) and np.all(new.disc < 0.02 * new.full_torque)
    assert 'not seen' in str(unseen) and 'of the fit' in str(inside)
    factory = sensor.matrix * (1 + 0.1 * rng.normal(size=(6, 6)))
    both = compare_with_factory(fit, fresh, factory)
    assert both.factory.overall[0] > 5 * both.ours.overall[0] and 'times as much' in str(both)
    assert (
        held_out([replace(d, strain=d.strain[:4], acceleration=d.acceleration[:4]) for d in train], calibrate_force_torque)
        is None
    )


def test_figures_are_drawn(done, tmp_path):
    from multibody_estimation.reporting.calibration_figures import calibration_figure, save_calibration_figures

    datasets = datasets_of(done.samples)
    for path in save_calibration_figures(done.calibration, datasets, tmp_path, factory=1.1 * SENSOR.matrix):
        assert path.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n' and path.stat().st_size > 20_000
    figure = calibration_figure(done.calibration, datasets)
    forces = np.concatenate([np.column_stack(c._offsets3d) for c in figure.axes[0].collections])
    masses = [SENSOR.body[0] + what.mass for what in LOADS for _ in DIRECTIONS]
    np.testing.assert_allclose(np.linalg.norm(forces, axis=1), GRAVITY * np.array(masses), rtol=0.02)


def test_plan_of_spans_and_saved_calibration_give_the_same_numbers(windows, done, tmp_path):
    """One long recording with a plan by hand; then the samples of the saved file, taken again from the same recording."""
    merged = Window.gather(
        replace(window[name], stamps=np.concatenate([w[name].stamps for w in windows.values()]), values=np.concatenate([w[name].values for w in windows.values()]))
        for window in [windows[LOADS[0]]] for name in window
    )  # fmt: skip
    text = {'serial': 'SG7', 'seconds': 0.8, 'datasets': {}}
    for k, what in enumerate(LOADS):
        entry = {'from': 100.0 * k, 'to': 100.0 * k + 50} | (
            {'mass': what.mass, 'center_of_mass': list(what.center_of_mass)} if k else {}
        )
        text['datasets'][str(what)] = entry
    (tmp_path / 'plan.yaml').write_text(yaml.safe_dump(text, sort_keys=False))
    readings = Readings.of(merged, *find_signals(merged))
    by_hand = compute(collect(Session('SG7'), readings, read_plan(tmp_path / 'plan.yaml', merged)))
    np.testing.assert_array_equal(by_hand.calibration.matrix, done.calibration.matrix)
    again = compute(collect(Session('SG7'), readings, read_plan(save(by_hand, tmp_path, 'saved'), merged)))
    for name in ('matrix', 'offset', 'covariance', 'body'):
        np.testing.assert_array_equal(getattr(again.calibration, name), getattr(by_hand.calibration, name))


@pytest.mark.parametrize(
    ('text', 'sentence'),
    {
        'datsets: {}': "'datsets' is no key of a plan. Did you mean 'datasets'",
        'datasets: {}': 'names no dataset',
        'datasets: {a: {mas: 1}}': "dataset 'a': 'mas' is no key",
        'datasets: {a: {from: 5, to: 2}}': 'ends .2 s. before it begins',
        'datasets: {a: {mass: -1}}': 'positive',
        'datasets: {a: {mass: x}}': 'malformed',
        '[1, 2': 'cannot be read as YAML',
        '3': 'no plan',
        'kind: force_torque_calibration': 'holds no samples',
    }.items(),
)
def test_bad_plans_are_sentences(windows, tmp_path, text, sentence):
    (tmp_path / 'plan.yaml').write_text(text)
    with pytest.raises(EstimationError, match=sentence):
        read_plan(tmp_path / 'plan.yaml', windows[LOADS[0]])


def test_bad_names_and_loads_are_sentences(windows):
    with pytest.raises(EstimationError, match="no IMU 'imo'. Did you mean 'imu'"):
        find_signals(windows[LOADS[0]], imu='imo')
    with pytest.raises(EstimationError, match='which strain signal'):
        find_signals(Window.gather([windows[LOADS[0]]['imu/accelerometer']]))
    assert parse_load('empty') == Load() and parse_load('1.0@0.1,0,0.05') == LOADS[1]
    for bad in ('1.0', 'x@1,2,3', '1@2'):
        with pytest.raises(EstimationError):
            parse_load(bad)
    with pytest.raises(EstimationError, match='never at rest'):
        collect(
            Session(gates=Gates(strain=0.01)),
            Readings.of(windows[LOADS[0]], STRAIN, 'imu'),
            Plan((Stretch('a', Load(), 0, 2**62),)),
        )


def test_robot_file_gives_the_same_wrenches_from_the_factory_wrench(done, tmp_path):
    """Read the XML back as a robot would, apply f = C2 f_in - o + k (T - T0), compare with the calibration itself."""
    import xml.etree.ElementTree as ET

    warm = replace(done.calibration, temperature_coefficient=np.arange(6.0), reference_temperature=24.0)
    factory = 1.05 * SENSOR.matrix + 1e-4
    for calibration in (warm, done.calibration):
        root = ET.fromstring(f'<a>{save_robot_xml(calibration, factory, "l_arm_ft_sensor", tmp_path / "x.xml").read_text()}</a>')
        text = {g.get('name'): g.find('param').text for g in root.iter('group')}
        assert all('.' in x or 'e' in x for t in text.values() for x in t.strip('()').split(','))
        C2, k, o = (
            np.array(text[f'FT_{n}'].strip('()').split(','), float)
            for n in ('SECONDARY_CALIBRATION', 'TEMPERATURE_COEFFICIENTS', 'OFFSET')
        )
        r, T = np.random.default_rng(0).normal(size=(20, 6)) * 5000, 31.0
        f = r @ factory.T @ C2.reshape(6, 6).T - o + k[:6] * (T - k[6])
        np.testing.assert_allclose(f, calibration.wrench(r, T), atol=1e-6)
    with pytest.raises(EstimationError, match='invertible'):
        robot_xml(done.calibration, np.zeros((6, 6)), 'a')


def test_next_sample_is_proposed_for_the_wanted_accuracy(full, done):
    assert what_next(replace(full, samples=full.samples[:9])) == ''
    assert what_next(done, wanted=0.5) == ''
    text = what_next(full, wanted=0.001)
    assert text.startswith('Next: With') and 'more samples' in text


def test_command_line_on_bags_gives_the_numbers_of_the_session(windows, done, tmp_path):
    from multibody_estimation.cli import application
    from multibody_estimation.recording.write import write_bag

    bags = [str(write_bag(tmp_path / f'bag{k}', window)) for k, window in enumerate(windows.values())]
    loads = ['--load', 'empty', '--load', '1.0@0.1,0,0.05', '--load', '0.8@0,0.1,0.05', '--load', '2@-0.1,0,0.1']
    np.savetxt(tmp_path / 'factory.csv', 1.05 * SENSOR.matrix, delimiter=',')
    more = ['--seconds', '0.8', '--serial', 'SG7', '--output', str(tmp_path / 'out.yaml'), '--figures', str(tmp_path / 'figures')]
    more += ['--wanted', '0.001', '--xml', str(tmp_path / 'robot.xml'), '--sensor', 'l_arm_ft_sensor']
    result = CliRunner().invoke(application(), ['calibrate-ft', *bags, *loads, *more, '--factory', str(tmp_path / 'factory.csv')])
    assert result.exit_code == 0, result.output
    assert 'Next: With' in result.output and '0.1 % per row' in result.output
    for words in ('9 static samples', 'will be known to', 'not seen', 'factory matrix', 'out.yaml', 'Figure'):
        assert words in result.output
    found = Calibration.load(tmp_path / 'out.yaml')
    np.testing.assert_array_equal(found.matrix, done.calibration.matrix)
    np.testing.assert_array_equal(found.covariance, done.calibration.covariance)
    checked = CliRunner().invoke(application(), ['calibrate-ft', *bags[:2], *loads[:4], '--seconds', '0.8', '--check'])
    assert checked.exit_code == 1 and 'rank 33 of 40' in checked.output and 'second mass' in checked.output
    checked = CliRunner().invoke(application(), ['calibrate-ft', *bags, *loads, '--seconds', '0.8', '--check'])
    assert checked.exit_code == 0 and 'predicted standard deviations' in checked.output and 'condition number' in checked.output
    held = ['--hold-out', '2 kg at (-0.1, 0, 0.1) m', '--output', str(tmp_path / 'held.yaml')]
    judged = CliRunner().invoke(application(), ['calibrate-ft', *bags, *loads, '--seconds', '0.8', *held])
    assert judged.exit_code == 0 and 'the fit has not seen:\n  2 kg' in judged.output, judged.output
    assert len(Calibration.load(tmp_path / 'held.yaml').residuals) == 3
    bad = CliRunner().invoke(application(), ['calibrate-ft', bags[0]])
    assert isinstance(bad.exception, EstimationError) and 'either --plan FILE' in str(bad.exception)
