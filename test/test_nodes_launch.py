# SPDX-License-Identifier: Apache-2.0
"""Launch files and `up` come from one table; with launch_ros there, each LaunchDescription is visited."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from multibody_estimation.nodes import bringup
from multibody_estimation.nodes.processes import command_line
from multibody_estimation.nodes.settings import SETTINGS, check, defaults_yaml
from multibody_estimation.nodes.start import NODES

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = {'furuta': {}, 'replay': {'bag': 'rosbags/furuta_chirp'}, 'icub': {}, 'calibration': {}}


def test_every_system_has_its_launch_file_and_every_launch_file_its_system():
    files = {p.name.removesuffix('.launch.py') for p in (ROOT / 'launch').glob('*.launch.py')}
    assert files == set(bringup.SYSTEMS)
    for name in files:
        assert f"describe('{name}')" in (ROOT / 'launch' / f'{name}.launch.py').read_text()


@pytest.mark.parametrize('system', bringup.SYSTEMS)
def test_parameters_of_a_system_exist_and_are_in_range(system):
    for spec in bringup.resolve(system, SAMPLES[system]):
        assert spec.executable in NODES
        given = dict(spec.parameters)
        for file in spec.files:
            content = yaml.safe_load(Path(file).read_text())
            assert set(content) <= set(NODES)
            given = content.get(spec.executable, {}).get('ros__parameters', {}) | given
        check(spec.executable, given, system)


def test_arguments_are_explained():
    for system in bringup.SYSTEMS.values():
        assert system.meaning
        for argument in system.arguments:
            assert argument.meaning.endswith('.'), argument.name
            assert not argument.choices or argument.default in argument.choices


def test_defaults_file_is_made_from_the_tables():
    assert (ROOT / 'config' / 'defaults.yaml').read_text() == defaults_yaml(), (
        'run: python -m multibody_estimation.nodes.settings > config/defaults.yaml'
    )
    for node, settings in SETTINGS.items():
        for s in settings:
            assert s.meaning, f'{node}.{s.name}'


def test_command_lines_carry_namespace_files_and_parameters():
    (driver, *_) = bringup.resolve('furuta', {'namespace': 'lab', 'excitation': 'sines'})
    line = command_line(driver)
    assert '__ns:=/lab' in line and any(re.fullmatch(r'excitation:="sines"', w) for w in line)
    assert line.count('--params-file') == 1


@pytest.mark.parametrize('system', bringup.SYSTEMS)
def test_launch_description_brings_up_the_same_nodes(system):
    pytest.importorskip(
        'launch_ros', reason='launch_ros is not installed; it has no wheel. `multibody-estimation up` serves in its place'
    )
    from launch.actions import DeclareLaunchArgument, OpaqueFunction

    from launch import LaunchContext

    path = ROOT / 'launch' / f'{system}.launch.py'
    spec = importlib.util.spec_from_file_location(f'{system}_launch', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    description = module.generate_launch_description()
    context = LaunchContext()
    nodes = []
    for name, value in SAMPLES[system].items():
        context.launch_configurations[name] = value
    for entity in description.entities:
        made = entity.visit(context) or []
        if isinstance(entity, OpaqueFunction):
            nodes += made
    declared = [e.name for e in description.entities if isinstance(e, DeclareLaunchArgument)]
    assert declared == [a.name for a in bringup.SYSTEMS[system].arguments]
    expected = [s.executable for s in bringup.resolve(system, SAMPLES[system])]
    assert [n.node_executable for n in nodes] == expected
