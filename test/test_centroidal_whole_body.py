# SPDX-License-Identifier: Apache-2.0
"""From joint angles, IMU and foot wrenches to the centroidal motion: a simulated walk of the iCub, its truth from pinocchio."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from multibody_estimation._jax import jax, jnp
from multibody_estimation.centroidal import (
    CentroidalSetup,
    OnlineCentroidal,
    ProcessNoise,
    Signals,
    StateLayout,
    WholeBody,
    estimate_centroidal,
    load_centroidal_setup,
    measure_recording,
)
from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.bag import read_bag
from multibody_estimation.recording.write import write_bag
from multibody_estimation.tree import load_urdf
from multibody_estimation.window import Signal, Window

pytest.importorskip('pinocchio')
pytest.importorskip('icub_models')
from multibody_estimation.centroidal.simulated import NOISE, icub_urdf, record, simulate_walk  # noqa: E402
from multibody_estimation.centroidal.whole_body import Instant, com_acceleration, measure_instant, stand  # noqa: E402

FEET = ('l_sole', 'r_sole')
SIGNALS = Signals(('ft/left/wrench', 'ft/right/wrench'))
PARTS = ('center_of_mass', 'linear_momentum', 'angular_momentum', 'force', 'moment')
QUIET = dict.fromkeys(NOISE, 1e-12)


@pytest.fixture(scope='module')
def walk():
    return simulate_walk()


@pytest.fixture(scope='module')
def model():
    return load_urdf(icub_urdf(), floating=True)


@pytest.fixture(scope='module')
def setup(model):
    return CentroidalSetup(WholeBody.of(model, FEET, imu='chest'), SIGNALS, process=ProcessNoise(switch_factor=5.0))


@pytest.fixture(scope='module')
def window(walk):
    return record(walk, seed=0)


@pytest.fixture(scope='module')
def estimate(window, setup):
    return estimate_centroidal(window, setup)


def drift_of(walk, window, setup):
    """How far the footholds that were followed lie from the true ones; (n, 3)."""
    seen = measure_recording(setup.body_for(window), window, setup.signals)
    wrench = next(m for m in seen.measurements if m.block == 'contact_wrench')
    true = np.einsum('ni,nix->nx', seen.standing, walk.soles) / seen.standing.sum(axis=1, keepdims=True)
    return wrench.anchor - true


def test_the_walk_obeys_the_laws_of_motion(walk):
    """Rates are those of the positions, momenta those of the forces, standing soles rest, and the feet can bear the wrenches."""
    period = walk.time[1]

    def rate(x):
        return np.gradient(x, period, axis=0)[2:-2]

    c, p, L, f, tau = np.split(walk.states, 5, axis=1)
    np.testing.assert_allclose(rate(walk.positions), walk.velocities[2:-2], atol=5e-3)
    np.testing.assert_allclose(rate(walk.velocities), walk.accelerations[2:-2], atol=0.2)
    np.testing.assert_allclose(walk.mass * rate(c), p[2:-2], atol=5e-3)
    np.testing.assert_allclose(rate(p), (f + walk.mass * np.array([0, 0, -9.81]))[2:-2], atol=0.5)
    np.testing.assert_allclose(rate(L), tau[2:-2], atol=0.03)
    for foot in range(2):
        bears = walk.load[:, foot] > 1e-9
        assert np.abs(np.diff(walk.soles[:, foot], axis=0)[bears[1:] & bears[:-1]]).max() < 1e-12
        fx, fy, fz, mx, my, _ = walk.wrenches[walk.load[:, foot] > 0.2, foot].T
        assert (fz > 0).all() and (np.hypot(fx, fy) < 0.3 * fz).all()
        assert (np.abs(my / fz) < 0.05).all() and (np.abs(mx / fz) < 0.03).all(), 'the center of pressure lies within the sole'
    assert walk.soles[-1, 0, 0] > 0.15


def instants_of(walk, model):
    order = [walk.joint_names.index(j) for j in model.joint_names]
    quaternions = Rotation.from_matrix(walk.imu_rotation).as_quat()[:, [3, 0, 1, 2]]
    parts = (walk.positions[:, order], walk.velocities[:, order], walk.wrenches, walk.imu[:, 3:], quaternions)
    return Instant(*(jnp.asarray(x) for x in parts))


MODES = {
    'feet alone': {},
    'gyroscope': {'imu': 'chest'},
    'orientation of the IMU': {'imu': 'chest', 'imu_orientation': True},
    'any ground': {'level_ground': False},
    'feet that may roll': {'imu': 'chest', 'imu_orientation': True, 'flat_feet': False},
}


@pytest.mark.parametrize('mode', MODES)
def test_without_noise_the_truth_comes_out(walk, model, mode):
    setup = CentroidalSetup(WholeBody.of(model, FEET, **MODES[mode]), SIGNALS)
    clean = record(walk, noise=QUIET)
    every = ('center_of_mass', 'contact_wrench', 'angular_momentum', 'linear_momentum', 'acceleration')
    seen = measure_recording(setup.body, clean, SIGNALS, every)
    found = {m.block: m for m in seen.measurements}
    c, p, L, f, tau = np.split(walk.states, 5, axis=1)
    np.testing.assert_allclose(found['center_of_mass'].values, c, atol=1e-9)
    np.testing.assert_allclose(found['linear_momentum'].values, p, atol=1e-8)
    np.testing.assert_allclose(found['angular_momentum'].values, L, atol=1e-8)
    wrench = found['contact_wrench']
    np.testing.assert_allclose(wrench.values, np.hstack([f, np.cross(c - wrench.anchor, f) + tau]), atol=1e-7)
    np.testing.assert_allclose(seen.base_position, walk.base_position, atol=1e-9)
    np.testing.assert_allclose(seen.base_rotation, walk.base_rotation, atol=1e-9)
    assert len(seen.switches) == 8, 'each of four steps lifts a foot and puts it down'
    if 'imu' in MODES[mode]:
        # The rates of joints and gyroscope are differences over 10 ms; their error falls with its square.
        a = found['acceleration'].values - (f / walk.mass + np.array([0, 0, -9.81]))[1:-1]
        assert np.abs(a).max() < 3e-3


@pytest.mark.parametrize('mode', MODES)
def test_covariances_are_those_of_the_sensors_noise(walk, model, mode):
    """Monte Carlo at one instant: the scatter of each measurement over draws of the sensors' noise."""
    noise = {'encoder_noise': 5e-4, 'velocity_noise': 0.02, 'wrench_noise': (1.0, 2.0, 3.0, 0.1, 0.2, 0.3), 'gyroscope_noise': 5e-3,
             'orientation_noise': 3e-3, 'placement_noise': 1e-9}  # fmt: skip
    body = WholeBody.of(model, FEET, **MODES[mode], **noise)
    k, draws, rng = 300, 3000, np.random.default_rng(0)
    clean = jax.tree.map(lambda x: x[k], instants_of(walk, model))
    holds = stand(body, clean)
    turned = Rotation.from_quat(np.asarray(clean.orientation)[[1, 2, 3, 0]]) * Rotation.from_rotvec(
        rng.normal(size=(draws, 3)) * 3e-3
    )
    many = Instant(
        clean.positions + rng.normal(size=(draws, 32)) * 5e-4,
        clean.velocities + rng.normal(size=(draws, 32)) * 0.02,
        clean.wrenches + rng.normal(size=(draws, 2, 6)) * np.array(noise['wrench_noise']),
        clean.gyroscope + rng.normal(size=(draws, 3)) * 5e-3,
        jnp.asarray(turned.as_quat()[:, [3, 0, 1, 2]]),
    )
    run = jax.jit(lambda i: measure_instant(body, holds, i)[1])
    drawn, told = jax.vmap(run)(many), run(clean)
    for block, covariance in told.covariance.items():
        scale = np.sqrt(np.diag(covariance))
        scatter = np.cov(np.asarray(drawn.values[block]).T) / np.outer(scale, scale)
        np.testing.assert_allclose(scatter, covariance / np.outer(scale, scale), atol=0.12, err_msg=block)


def test_the_accelerometer_tells_of_the_center_of_mass_with_its_covariance(walk, model, setup):
    k, draws, rng, period = 300, 2000, np.random.default_rng(1), 0.005
    body = WholeBody.of(model, FEET, imu='chest', velocity_noise=0.01, gyroscope_noise=2e-3, accelerometer_noise=0.05)
    clean = instants_of(walk, model)
    holds = stand(body, jax.tree.map(lambda x: x[k], clean))

    def acceleration(gyroscope, rates, reading):
        """From the readings at three instants."""

        def seen(i):
            now = jax.tree.map(lambda x: x[k - 1 + i], clean)
            return measure_instant(body, holds, replace(now, gyroscope=gyroscope[i], velocities=rates[i]))[1]

        slope = ((seen(2).velocity - seen(0).velocity) / (2 * period)).at[:3].set(0.0)
        return com_acceleration(body, seen(1), clean.positions[k], slope, reading, jnp.asarray(period))

    around = slice(k - 1, k + 2)
    readings = (np.asarray(clean.gyroscope[around]), np.asarray(clean.velocities[around]), walk.imu[k, :3])
    sizes = (2e-3, 0.01, 0.05)
    told, covariance = jax.jit(acceleration)(*readings)
    np.testing.assert_allclose(told, walk.states[k, 9:12] / walk.mass + np.array([0, 0, -9.81]), atol=5e-3)
    noisy = [jnp.asarray(r + rng.normal(size=(draws, *r.shape)) * s) for r, s in zip(readings, sizes, strict=True)]
    drawn, _ = jax.jit(jax.vmap(acceleration))(*noisy)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(
        np.cov(np.asarray(drawn).T) / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.12
    )


def test_a_recording_gives_the_motion_with_honest_covariance(walk, model, setup):
    """RMSE and NEES over five recordings; the center of mass is compared in the world of the footholds, which drifts."""
    size, nees = [], []
    for seed in range(5):
        window = record(walk, seed=seed)
        found = estimate_centroidal(window, setup)
        assert 'Converged' in found.sentence
        error = found.states - walk.states
        size.append(np.sqrt(np.mean(error.reshape(-1, 5, 3) ** 2, axis=(0, 2))))
        error[:, :3] -= drift_of(walk, window, setup)
        nees.append(np.mean(np.einsum('ni,nij,nj->n', error, np.linalg.inv(found.covariance), error)) / 15)
    c, p, L, f, tau = np.mean(size, axis=0)
    assert c < 2e-4 and p < 0.02 and L < 0.01 and f < 0.8 and tau < 0.25
    assert 0.5 < np.mean(nees) < 1.3


LOSSES = ('encoders', 'joint_velocities', 'imu/gyroscope', 'imu/accelerometer', 'ft/left/wrench', 'ft/right/wrench')


@pytest.mark.parametrize('lost', LOSSES)
def test_a_sensor_may_pause(walk, window, setup, estimate, lost):
    """0.2 s without one sensor in the middle of a step: what it tells is less certain there, and the errors fit."""
    signal = window[lost]
    time = window.seconds(lost)
    pause = (time > 2.0) & (time < 2.2)
    found = estimate_centroidal(replace(window, signals={**window.signals, lost: signal.take(~pause)}), setup)
    assert 'Converged' in found.sentence
    rows = np.searchsorted(walk.time, found.time - 1e-6)
    error = found.states - walk.states[rows]
    error[:, :3] = 0  # footholds move with the loss
    deviation = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert np.abs(error / deviation).max() < 6.5
    if lost != 'encoders':
        before = np.sqrt(np.diagonal(estimate.covariance, axis1=1, axis2=2))[rows]
        middle = np.abs(found.time - 2.1) < 0.05
        assert (deviation[middle] > 1.005 * before[middle]).any(axis=1).all()


def test_a_slow_sensor_counts_once(window, setup):
    slow = {name: window[name].take(slice(1, None, 5)) for name in SIGNALS.wrenches}
    seen = measure_recording(setup.body, replace(window, signals={**window.signals, **slow}), SIGNALS)
    wrench = next(m for m in seen.measurements if m.block == 'contact_wrench')
    assert len(wrench.time) == len(slow['ft/left/wrench'])


def test_rates_may_be_missing(walk, window, setup):
    """Without joint rates, differences of the angles serve, with the noise that goes with them."""
    fewer = {name: s for name, s in window.signals.items() if name != 'joint_velocities'}
    found = estimate_centroidal(replace(window, signals=fewer), setup)
    error = found.states - walk.states
    assert np.sqrt(np.mean(error[:, 6:9] ** 2)) < 0.02
    deviation = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert np.sqrt(np.mean((error / deviation)[:, 3:] ** 2)) < 1.5


def test_a_push_that_the_feet_do_not_feel_is_found(setup):
    walk = simulate_walk(steps=2, push=(1.2, 0.8, (30.0, -20.0, 0.0)))
    measures = ('center_of_mass', 'contact_wrench', 'angular_momentum', 'acceleration', 'linear_momentum')
    pushed = replace(setup, layout=StateLayout(external_wrench=True), measures=measures,
                     process=ProcessNoise(external_force=60.0, external_moment=20.0, switch_factor=5.0))  # fmt: skip
    found = estimate_centroidal(record(walk, seed=1), pushed)
    error = np.hstack([found['external_force'], found['external_moment']]) - walk.push
    deviation = np.hstack([found.deviation('external_force'), found.deviation('external_moment')])
    assert np.sqrt(np.mean((error / deviation) ** 2)) < 1.3
    middle = np.abs(walk.time - 1.7) < 0.2
    np.testing.assert_allclose(found['external_force'][middle].mean(axis=0), [30.0, -20.0, 0.0], atol=2.0)
    blind = estimate_centroidal(record(walk, seed=1), setup)
    assert blind.misfit['contact_wrench'] > 1.5 * found.misfit['contact_wrench'], 'without the state the sensors disagree'


SETUP = """\
urdf: icub-models:iCubGazeboV2_5
contacts:
  left: {frame: l_sole, signal: ft/left/wrench}
  right: {frame: r_sole, signal: ft/right/wrench}
imu: {frame: chest}
process: {switch_factor: 5}
"""


def test_bag_and_setup_file_give_the_same_numbers(window, estimate, tmp_path):
    write_bag(tmp_path / 'bag', window)
    (tmp_path / 'setup.yaml').write_text(SETUP)
    again = estimate_centroidal(read_bag(tmp_path / 'bag'), tmp_path / 'setup.yaml')
    np.testing.assert_allclose(again.states, estimate.states, rtol=1e-9, atol=1e-9)


def test_the_verb_runs_on_its_own_example(tmp_path):
    from typer.testing import CliRunner

    from multibody_estimation.cli import application

    folder = tmp_path / 'walk'
    run = CliRunner()
    made = run.invoke(application(), ['centroidal', '--example', str(folder)])
    assert made.exit_code == 0 and 'Next: multibody-estimation centroidal' in made.output
    told = run.invoke(
        application(),
        [
            'centroidal',
            f'{folder}/setup.yaml',
            f'{folder}/bag',
            '--truth',
            f'{folder}/truth.npz',
            '--output',
            f'{folder}/out.npz',
        ],
    )
    assert told.exit_code == 0, told.output
    assert 'Converged' in told.output and 'Against the truth' in told.output and (folder / 'out.npz').stat().st_size > 10000
    used = ['centroidal', f'{folder}/setup.yaml', f'{folder}/bag', '--end', '0.5']
    for sentence, more in {'is no file of true states': ['--truth', f'{folder}/none.npz'],
                           'cannot be written': ['--figure', f'{folder}/none/figure.png']}.items():  # fmt: skip
        with pytest.raises(EstimationError, match=sentence):
            run.invoke(application(), [*used, *more], catch_exceptions=False)
    with pytest.raises(EstimationError, match='A setup file and a recording are needed'):
        run.invoke(application(), ['centroidal'], catch_exceptions=False)
    with pytest.raises(EstimationError, match='exists already'):
        run.invoke(application(), ['centroidal', '--example', str(folder)], catch_exceptions=False)


BAD = {
    "line 6: 'proces' is no key of the file. Did you mean 'process'": SETUP.replace('process', 'proces'),
    "line 3: 'signl' is no key of contacts.left. Did you mean 'signal'": SETUP.replace('l_sole, signal', 'l_sole, signl'),
    "no link 'l_soul'. Did you mean 'l_sole'": SETUP.replace('l_sole', 'l_soul'),
    'process.switch_factor is .many.: a number': SETUP.replace('factor: 5', 'factor: many'),
    'switch_factor = -5.0: a finite number above zero': SETUP.replace('factor: 5', 'factor: -5'),
    "'urdf' is missing": SETUP.replace('urdf: icub-models:iCubGazeboV2_5', ''),
    "'contacts' is missing": 'urdf: x.urdf',
    "contacts.left has no 'signal'": SETUP.replace('l_sole, signal: ft/left/wrench', 'l_sole'),
    'There is no URDF at': SETUP.replace('icub-models:iCubGazeboV2_5', 'none.urdf'),
    "'center_of_mas' is not possible for measure. Did you mean": SETUP + 'measure: [center_of_mas]',
    "'push' is not possible for estimate": SETUP + 'estimate: [push]',
    'lag of -1': SETUP + 'lag: -1',
    "no part 'com_offset'": SETUP + 'prior: {com_offset: [0, 0.01]}',
    'is no YAML': 'a: [',
    'is empty': '',
    'must be a mapping': '- a',
    "'lag' is there twice": SETUP + 'lag: 1\nlag: 2',
    'encoder_noise = 0.0: finite numbers above zero': SETUP + 'noise: {encoders: 0}',
}


@pytest.mark.parametrize('sentence', BAD)
def test_a_bad_setup_file_is_answered_with_a_sentence(sentence, tmp_path):
    (tmp_path / 'setup.yaml').write_text(BAD[sentence])
    with pytest.raises(EstimationError, match=sentence) as caught:
        load_centroidal_setup(tmp_path / 'setup.yaml')
    assert 'setup.yaml' in str(caught.value)


def test_a_bad_recording_is_answered_with_a_sentence(window, setup, model):
    def without(name):
        return replace(window, signals={n: s for n, s in window.signals.items() if n != name})

    air = {n: replace(window[n], values=window[n].values * 0.01) for n in SIGNALS.wrenches}
    few = replace(window['encoders'], columns=('other', *window['encoders'].columns[1:]))
    for sentence, bad in {
        "no signal 'encoders'": without('encoders'),
        "no signal 'ft/left/wrench'": without('ft/left/wrench'),
        "no signal 'imu/gyroscope'": without('imu/gyroscope'),
        'No contact at all: no foot ever feels': replace(window, signals={**window.signals, **air}),
        "encoders has no column 'l_hip_pitch'": replace(window, signals={**window.signals, 'encoders': few}),
        'the recording is empty': replace(
            window, signals={**window.signals, 'ft/left/wrench': window['ft/left/wrench'].take(slice(0))}
        ),
        'at least three': replace(window, signals={**window.signals, 'encoders': window['encoders'].take(slice(2))}),
    }.items():
        with pytest.raises(EstimationError, match=sentence):
            estimate_centroidal(bad, setup)
    with pytest.raises(EstimationError, match='is empty'):
        Window.gather([Signal('encoders', np.zeros(0, int), np.zeros((0, 1)))])
    with pytest.raises(EstimationError, match='floating base'):
        WholeBody.of(load_urdf(icub_urdf()), FEET)
    with pytest.raises(EstimationError, match='No contact at all'):
        WholeBody.of(model, ())
    with pytest.raises(EstimationError, match="do not tell the robot's orientation"):
        WholeBody.of(model, FEET, flat_feet=False)
    with pytest.raises(EstimationError, match='mass of 0.0'):
        WholeBody.of(model.replace(mass=0 * model.mass), FEET)


def steps_of(window, model, count):
    order = [window['encoders'].columns.index(j) for j in model.joint_names]
    for k in range(count):
        wrenches = {name: window[name].values[k] for name in SIGNALS.wrenches}
        yield (int(window['encoders'].stamps[k]), window['encoders'].values[k, order], window['joint_velocities'].values[k, order],
               wrenches), {'gyroscope': window['imu/gyroscope'].values[k]}  # fmt: skip


def test_online_equals_offline_when_the_lag_spans_all_data(window, setup, model):
    same = replace(setup, body=setup.body_for(window), measures=('center_of_mass', 'contact_wrench', 'angular_momentum'),
                   process=ProcessNoise(switch_factor=1.0), lag=0.3)  # fmt: skip
    batch = estimate_centroidal(window.cut(0.0, 0.2499), same)
    estimator = OnlineCentroidal.configure(same, period=0.005)
    for step, more in steps_of(window, model, 50):
        estimator, now = estimator.step(*step, **more)
    assert now.stamp == int(window['encoders'].stamps[49]) and now.delayed.stamp == int(window['encoders'].stamps[0])
    assert now.converged and now.standing == {'l_sole': True, 'r_sole': True}
    deviation = np.sqrt(np.diagonal(batch.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose((now.states - batch.states[-1]) / deviation[-1], 0, atol=1e-5)
    np.testing.assert_allclose((now.delayed.states - batch.states[0]) / deviation[0], 0, atol=1e-5)
    np.testing.assert_allclose(now.covariance, batch.covariance[-1], rtol=1e-4, atol=1e-9)


def test_online_follows_a_walk_and_refuses_bad_samples(walk, window, setup, model):
    live = replace(setup, body=setup.body_for(window))
    estimator = OnlineCentroidal.configure(live, period=0.005)
    now_states, now_deviations, late = [], [], []
    for k, (step, more) in enumerate(steps_of(window, model, 500)):
        if 400 <= k < 412:  # and then everything
            continue
        if 300 <= k < 310:  # the feet's sensors pause
            step = (*step[:3], None)
        if 320 <= k < 330:  # so do the rates
            step = (*step[:2], None, step[3])
        estimator, now = estimator.step(*step, **more)
        assert now.converged
        now_states.append(now.states)
        now_deviations.append(np.sqrt(np.diag(now.covariance)))
        late.append(now.delayed.states)
    rows = np.r_[:400, 412:500]
    error = np.array(now_states) - walk.states[rows]
    assert np.sqrt(np.mean((error / np.array(now_deviations))[20:, 3:] ** 2)) < 1.3
    assert np.sqrt(np.mean((np.array(late)[40:400, 3:6] - walk.states[20:380, 3:6]) ** 2)) < 0.5 * np.sqrt(
        np.mean(error[40:, 3:6] ** 2)
    )
    assert now.wrench.shape == (6,) and np.linalg.eigvalsh(now.wrench_covariance).min() > 0
    assert now['center_of_mass'].shape == now.deviation('center_of_mass').shape == (3,)
    (stamp, q, v, wrenches), more = next(steps_of(window, model, 1))
    late = estimator.last + 5_000_000
    for sentence, bad in {
        'Time runs backwards': (stamp, q, v, wrenches),
        'positions must be 32 finite numbers': (late, q[:-1], v, wrenches),
        'velocities must be 32 finite numbers': (late, q, v * np.nan, wrenches),
        "wrench 'ft/right/wrench' is missing": (late, q, v, {'ft/left/wrench': np.zeros(6)}),
        "no contact with the signal 'ft/lft/wrench'. Did you mean": (late, q, v, {'ft/lft/wrench': np.zeros(6)}),
        "positions lack joint 'r_hip_pitch'": (late, {'l_knee': 0.0}, v, wrenches),
    }.items():
        with pytest.raises(EstimationError, match=sentence):
            estimator.step(*bad, **more)
    begin = OnlineCentroidal.configure(live, period=0.005, warm_up=False)
    with pytest.raises(EstimationError, match='No contact at all: no foot feels'):
        begin.step(stamp, q, v, np.zeros((2, 6)), **more)
    with pytest.raises(EstimationError, match='first sample must bring'):
        begin.step(stamp, q, v, None, **more)
    with pytest.raises(EstimationError, match='period of 0'):
        OnlineCentroidal.configure(live, period=0.0)
