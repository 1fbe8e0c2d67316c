# SPDX-License-Identifier: Apache-2.0
"""The example of a whole-body impedance controller runs, in our own integrator and in MuJoCo, and says that it works."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / 'examples' / 'whole_body_impedance.py'

ARM = '<robot name="arm"><link name="base"/>' + ''.join(
    f'<link name="link{i}"><inertial><mass value="1"/><origin xyz="0 0 0.15"/>'
    '<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    f'<joint name="joint{i}" type="revolute"><parent link="{f"link{i - 1}" if i else "base"}"/><child link="link{i}"/>'
    f'<origin xyz="0 0 0.3"/><axis xyz="{i % 2} 1 0"/><limit lower="-2" upper="2" effort="50" velocity="10"/></joint>'
    for i in range(3)
) + '</robot>'  # fmt: skip


def run(*arguments):
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], env=environment, capture_output=True, text=True, timeout=200
    )
    return done, [float(x) for x in re.findall(r'(\d\.\de[-+]\d\d) rad', done.stdout)]


def test_the_example_fits_on_a_slide():
    assert len(EXAMPLE.read_text().splitlines()) <= 30


def test_impedance_control_of_an_arm_comes_to_rest_in_both_simulators(tmp_path):
    pytest.importorskip('mujoco')
    urdf = tmp_path / 'arm.urdf'
    urdf.write_text(ARM)
    done, (own, theirs, apart) = run(str(urdf))
    assert done.returncode == 0
    assert own < 1e-2 and theirs < 1e-2 and 0 < apart < 1e-2


def test_impedance_control_of_the_icub_comes_to_rest():
    pytest.importorskip('icub_models')
    _, numbers = run()
    assert numbers and max(numbers) < 5e-3
