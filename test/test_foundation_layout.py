# SPDX-License-Identifier: Apache-2.0
"""The house rules: who may import whom, what the three package files must agree on, licences, no machine's paths."""

import ast
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'multibody_estimation'
ROOMS = sorted(p.name for p in PACKAGE.iterdir() if (p / '__init__.py').exists())

# A room may import from rooms of a lower floor, and from its own. Rooms of one floor do not know each other, but for the pairs below.
FLOORS = {
    'geometry': 0, 'kernels': 0,
    'tree': 1, 'maximal': 1, 'least_squares': 1,
    'identification': 2, 'wrench': 2, 'calibration': 2, 'centroidal': 2,
    'robots': 3,
    'recording': 4, 'hardware': 4, 'reporting': 4,
    'studies': 4.5,
    'cli': 5, 'nodes': 6,
}  # fmt: skip
NEIGHBOURS = {
    ('kernels', 'geometry'),
    ('maximal', 'tree'),  # a tree becomes bodies and joints
    ('recording', 'hardware'),
    ('hardware', 'recording'),  # a bag replayed is a device
}
LAZY = {
    ('cli', 'nodes'),  # `up` starts nodes as processes
    ('studies', 'cli'),  # a study opens robots and recordings as the verbs do
    ('identification', 'reporting'),  # fit.report()
    ('calibration', 'reporting'),
    ('wrench', 'reporting'),
    ('centroidal', 'reporting'),
}
"""Imports that are allowed inside a function only."""


def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, and whether it does so inside a function."""
    tree = ast.parse(path.read_text())
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for n in ast.walk(f)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.module, id(node) in inside))
            if node.module == 'multibody_estimation':
                found += [(f'multibody_estimation.{alias.name}', id(node) in inside) for alias in node.names]
    return found


@pytest.mark.parametrize('room', ROOMS)
def test_rooms_import_downwards_only(room):
    assert room in FLOORS, f'{room} has no floor: add it to FLOORS and to the drawing of the house'
    for path in sorted((PACKAGE / room).rglob('*.py')):
        for module, lazy in imports(path):
            parts = module.split('.')
            if parts[0] != 'multibody_estimation' or len(parts) == 1 or parts[1] not in FLOORS or parts[1] == room:
                continue
            pair = (room, parts[1])
            allowed = FLOORS[parts[1]] < FLOORS[room] or pair in NEIGHBOURS or (lazy and pair in LAZY)
            assert allowed, f'{path.relative_to(ROOT)} imports {module}: {room} stands below or beside {parts[1]}'


def test_only_nodes_know_ros():
    ros = {'rclpy', 'launch', 'launch_ros', 'tf2_msgs', 'tf2_ros', 'ament_index_python'}
    for path in sorted(PACKAGE.rglob('*.py')):
        if path.is_relative_to(PACKAGE / 'nodes') or path == PACKAGE / 'cli' / 'diagnosis.py':
            continue
        for module, _ in imports(path):
            parts = module.split('.')
            assert parts[0] not in ros and not parts[0].endswith('_msgs'), f'{path.relative_to(ROOT)} imports {module}'
            assert parts[:2] not in (['multibody_estimation', 'msg'], ['multibody_estimation', 'srv']), (
                f'{path.relative_to(ROOT)} imports {module}'
            )


def test_importing_the_core_imports_no_ros():
    code = (
        'import sys, multibody_estimation as me; from multibody_estimation import cli; cli.application(); '
        "[getattr(me, name) for name in me.__all__]; print([m for m in sys.modules if m.split('.')[0] in ('rclpy', 'rosidl_runtime_py')])"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '[]'


def setup_arguments() -> dict:
    """What setup.py passes to setup(), evaluated."""
    code = (
        'import json, setuptools; setuptools.setup = lambda **k: print(json.dumps('
        "{a: k[a] for a in ('name', 'version', 'data_files', 'entry_points', 'python_requires', 'extras_require')}));"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    )
    import json

    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_the_package_files_agree():
    setup = setup_arguments()
    package = ET.parse(ROOT / 'package.xml').getroot()
    cmake = (ROOT / 'CMakeLists.txt').read_text()
    import multibody_estimation

    versions = {
        setup['version'],
        package.findtext('version'),
        re.search(r'project\(\w+ VERSION ([\d.]+)', cmake)[1],
        multibody_estimation.__version__,
    }
    assert len(versions) == 1, versions
    assert (ROOT / 'CHANGELOG.rst').read_text().count(setup['version']) >= 1
    assert setup['name'] == package.findtext('name') == re.search(r'project\((\w+)', cmake)[1] == 'multibody_estimation'
    assert package.get('format') == '3'

    from multibody_estimation.nodes.start import NODES

    installed = dict(setup['data_files'])
    scripts = {Path(p).name for p in installed['lib/multibody_estimation']}
    by_cmake = set(re.findall(r'scripts/(\w+)', cmake))
    assert scripts == by_cmake == set(NODES) == {p.name for p in (ROOT / 'scripts').iterdir()}
    for folder in ('launch', 'config'):
        assert installed[f'share/multibody_estimation/{folder}'], f'setup.py installs nothing of {folder}/'
        assert re.search(rf'install\(DIRECTORY[^)]*\b{folder}\b', cmake)

    listed = {e.text for tag in ('depend', 'exec_depend') for e in package.findall(tag)}
    wheels = {re.sub(r'\[.*', '', w).removeprefix('ros-kilted-').replace('-', '_') for w in setup['extras_require']['ros']}
    assert wheels <= listed, f'package.xml does not list {wheels - listed}'


def test_interfaces_comment_every_field():
    for path in sorted([*ROOT.glob('msg/*.msg'), *ROOT.glob('srv/*.srv'), *ROOT.glob('action/*.action')]):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if line.strip() and not line.startswith('#') and line.strip() != '---':
                assert '#' in line, f'{path.name} line {number} says no unit, frame or meaning: {line}'


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(['git', 'ls-files', *patterns], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip('not a git checkout')
    return [ROOT / p for p in done.stdout.split('\n') if p and (ROOT / p).exists()]


def test_every_source_carries_its_licence():
    for path in tracked('*.py', '*.cc', '*.h', 'CMakeLists.txt', 'Makefile', 'scripts/*'):
        if path.stat().st_size:
            assert 'SPDX-License-Identifier: Apache-2.0' in path.read_text()[:200], path.relative_to(ROOT)


def test_no_path_of_a_machine_and_no_pickle():
    machine = re.compile(r'/(?:tm[p]|wor[k]|roo[t]|hom[e])/[a-z]')
    unsafe = re.compile(r'\bpickle\b|yaml\.load\(|allow_pickle=True')
    for path in tracked('*.py', '*.md', '*.rst', '*.yaml', '*.toml', '*.xml', '*.cc', 'Makefile', '*.txt', '*.html'):
        text = path.read_text(errors='replace')
        assert not machine.search(text), f'{path.relative_to(ROOT)}: {machine.search(text)[0]}'
        if path.suffix == '.py' and path != Path(__file__).resolve():
            assert not unsafe.search(text), f'{path.relative_to(ROOT)}: {unsafe.search(text)[0]}'


def test_no_file_grows_past_400_lines():
    for path in tracked('multibody_estimation/**/*.py', 'multibody_estimation/*.py'):
        assert len(path.read_text().splitlines()) <= 400, path.relative_to(ROOT)


def test_lint_settings_serve_the_oldest_python():
    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    assert settings['tool']['ruff']['target-version'] == 'py311'
    assert setup_arguments()['python_requires'].startswith('>=3.11')


def test_style_is_as_ruff_has_it():
    import importlib.util

    if importlib.util.find_spec('ruff') is None:
        pytest.skip('ruff is not installed')
    for arguments in (['check', '.'], ['format', '--check', '.']):
        done = subprocess.run([sys.executable, '-m', 'ruff', *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-500:]
