# SPDX-License-Identifier: Apache-2.0
"""From a URDF, a robot file and a bag that MuJoCo made to the identified URDF, by the command line alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import multibody_estimation as me
from multibody_estimation import tree

sys.path.insert(0, str(Path(__file__).parent))
import own_robot  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def run(*words: object, code: int = 0) -> str:
    line = [sys.executable, '-m', 'multibody_estimation.cli', *map(str, words)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope='module', params=list(own_robot.TRUTH))
def identified(request, tmp_path_factory):
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    bag = me.write_bag(folder / 'bag', own_robot.simulate(name))
    said = run('identify', own_robot.ROBOTS / f'{name}.yaml', bag, '--output', folder)
    return name, folder, said


def test_files_of_at_most_25_lines_describe_the_robot():
    for name in own_robot.TRUTH:
        for ending in ('urdf', 'yaml'):
            assert len((own_robot.ROBOTS / f'{name}.{ending}').read_text().splitlines()) <= 25


def test_the_numbers_of_mujoco_are_found(identified):
    """To 2 %: MuJoCo's dry friction is not ours; starts are 30 to 50 % away."""
    name, folder, _ = identified
    found = yaml.safe_load((folder / f'{name}.fit.yaml').read_text())
    assert found['converged'] and set(found['parameters']) == set(own_robot.TRUTH[name])
    for parameter, truth in own_robot.TRUTH[name].items():
        rough = 0.05 if parameter.endswith(('damping', 'coulomb')) else 0.02
        assert found['parameters'][parameter]['value'] == pytest.approx(truth, rel=rough), parameter


def test_all_results_are_there_and_the_table_is_printed(identified):
    name, folder, said = identified
    assert 'estimate ± std' in said and 'Next: ' in said
    assert (folder / 'report.html').stat().st_size > 10_000


def test_the_identified_urdf_has_the_fitted_dynamics(identified):
    """URDF -> identify -> URDF -> load, to 1e-12."""
    name, folder, _ = identified
    robot = me.load_robot(own_robot.ROBOTS / f'{name}.yaml')
    fitted = me.Fit.load(folder / f'{name}.fit.yaml', robot).robot.model
    written = tree.load_urdf(folder / f'{name}.identified.urdf')
    rng = np.random.default_rng(1)
    for _ in range(5):
        q, v, a = rng.standard_normal((3, 2))
        np.testing.assert_allclose(
            tree.inverse_dynamics(written, q, v, a), tree.inverse_dynamics(fitted, q, v, a), rtol=1e-12, atol=1e-14
        )
    for field in ('damping', 'coulomb'):
        np.testing.assert_allclose(getattr(written, field), getattr(fitted, field), rtol=1e-14)


def test_the_rest_of_the_urdf_is_kept(identified):
    name, folder, _ = identified
    before, after = ((own_robot.ROBOTS / f'{name}.urdf').read_text(), (folder / f'{name}.identified.urdf').read_text())
    same = [line for line in before.splitlines() if 'value=' not in line and 'dynamics' not in line]
    assert all(line in after.splitlines() for line in same if '<inertial>' not in line)
    assert 'identified by multibody_estimation' in after


def test_mistakes_are_one_sentence(tmp_path):
    bag = me.write_bag(tmp_path / 'bag', own_robot.simulate('double_pendulum', 1.0))
    arm = own_robot.ROBOTS / 'two_joint_arm.yaml'
    for words, expected in [
        (('identify', arm, bag), "no topic '/applied_command' for the signal 'command'"),
        (('identify', arm, tmp_path / 'none'), 'none'),
        (('check', 'furta', bag), "Did you mean 'furuta'?"),
        (('check', own_robot.ROBOTS / 'cart_pole.urdf', bag), 'write a robot file'),
    ]:
        said = run(*words, code=1).strip()
        assert expected in said and len(said.splitlines()) == 1, said


def test_a_urdf_without_inertials_is_one_sentence(tmp_path):
    text = (own_robot.ROBOTS / 'double_pendulum.urdf').read_text()
    import re

    (tmp_path / 'double_pendulum.urdf').write_text(re.sub(r'<inertial>.*</inertial>', '', text))
    (tmp_path / 'robot.yaml').write_text((own_robot.ROBOTS / 'double_pendulum.yaml').read_text())
    bag = me.write_bag(tmp_path / 'bag', own_robot.simulate('double_pendulum', 1.0))
    said = run('identify', tmp_path / 'robot.yaml', bag, code=1).strip()
    assert 'inertial' in said and len(said.splitlines()) == 1, said
