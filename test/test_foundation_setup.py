# SPDX-License-Identifier: Apache-2.0
"""Setting up: what is missing or unsupported is said in one sentence; benchmarks and targets are as promised."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def sentence(done: subprocess.CompletedProcess) -> str:
    """The one line that a failed command printed."""
    assert done.returncode != 0
    assert 'Traceback' not in done.stderr + done.stdout
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith('make')]
    assert len(lines) == 1, lines
    return lines[0]


def set_up(tmp_path: Path, **environment: str | None) -> subprocess.CompletedProcess:
    env = {**os.environ, 'VENV': str(tmp_path / 'venv')}
    for key, value in environment.items():
        env.pop(key, None)
        if value is not None:
            env[key] = value
    return subprocess.run([sys.executable, 'tools/set_up.py'], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def test_unknown_target_is_named():
    done = subprocess.run(['make', 'frobnicate'], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "no target 'frobnicate'" in sentence(done)
    assert 'make help' in done.stderr


def test_help_lists_every_target():
    done = subprocess.run(['make', 'help'], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    phony = re.search(r'^\.PHONY: (.*)$', (ROOT / 'Makefile').read_text(), re.M)[1].split()
    for target in phony:
        assert f'make {target}' in done.stdout


def test_missing_compiler_is_named(tmp_path):
    tools = tmp_path / 'bin'
    tools.mkdir()
    for tool in ('cmake', 'make', 'cc'):
        if shutil.which(tool):
            (tools / tool).symlink_to(shutil.which(tool))
    said = sentence(set_up(tmp_path, PATH=str(tools), CXX=None, CC=None, ROS_DISTRO=None))
    assert "'c++' is not installed" in said and 'apt-get install g++' in said


def test_unsupported_distro_is_named(tmp_path):
    said = sentence(set_up(tmp_path, ROS_DISTRO='humble'))
    assert 'humble' in said and 'jazzy' in said and 'unset ROS_DISTRO' in said


def test_unknown_wheels_are_named(tmp_path):
    assert 'kilted or jazzy' in sentence(set_up(tmp_path, ROS_DISTRO=None, ROS_WHEELS='melodic'))


@pytest.mark.parametrize('name', ['python3.10', 'python3.9', 'python3.8'])
def test_unsupported_python_is_named(tmp_path, name):
    old = shutil.which(name)
    if not old or subprocess.run([old, '-c', ''], capture_output=True).returncode:
        pytest.skip(f'{name} is not installed')
    env = {**os.environ, 'VENV': str(tmp_path / 'venv')}
    done = subprocess.run(
        ['make', 'build', f'PYTHON={old}', f'VENV={tmp_path / "venv"}'],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    said = sentence(done)
    assert 'is not supported' in said and '3.11 to 3.13' in said


def test_the_check_refuses_older_and_newer_pythons(monkeypatch):
    import importlib.util

    spec = importlib.util.spec_from_file_location('set_up', ROOT / 'tools' / 'set_up.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for version in ((3, 10, 13), (3, 14, 0)):
        monkeypatch.setattr(module.sys, 'version_info', version)
        with pytest.raises(module.Stop, match='is not supported: use 3.11 to 3.13'):
            module.check_machine()


def test_doctor_answers():
    done = subprocess.run(
        [sys.executable, '-m', 'multibody_estimation.cli', 'doctor'], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for what in ('Python', 'JAX', 'compiled kernels', 'ROS 2', 'compilation cache'):
        assert what in done.stdout


def test_help_explains_every_verb_with_an_example():
    from multibody_estimation.cli import VERBS

    assert VERBS
    for verb in VERBS:
        done = subprocess.run(
            [sys.executable, '-m', 'multibody_estimation.cli', verb, '--help'],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert f'multibody-estimation {verb}' in done.stdout, f'{verb} --help shows no example'


def test_kernel_equals_its_twin_and_can_be_switched_off():
    code = (
        'import logging; logging.basicConfig(level=logging.INFO); import numpy as np; '
        'from multibody_estimation.kernels.axpy import axpy, axpy_twin; from multibody_estimation.kernels import available; '
        "x = np.arange(4.0); print(available('axpy'), np.abs(axpy(2.5, x, x) - axpy_twin(2.5, x, x)).max())"
    )
    for switch, expected in [('1', 'True 0.0'), ('0', 'False 0.0')]:
        env = {**os.environ, 'MULTIBODY_ESTIMATION_KERNELS': switch}
        done = subprocess.run(
            [sys.executable, '-c', code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=True
        )
        assert done.stdout.strip() == expected
        if switch == '0':
            assert 'twins serve' in done.stderr


def test_every_benchmark_is_listed_and_documented():
    import ast

    from benchmarks.__main__ import names

    assert names()
    for name in names():
        tree = ast.parse((ROOT / 'benchmarks' / f'{name}.py').read_text())
        assert ast.get_docstring(tree), f'benchmarks/{name}.py says nothing about itself'
