# SPDX-License-Identifier: Apache-2.0
"""What the README and the guide show is run here: every Python block, every command."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md')])
BLOCK = re.compile(r'^```(\w+)[^\n]*\n(.*?)^```', re.M | re.S)


def blocks(page: Path, *kinds: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind in kinds]


def commands(page: Path) -> list[list[str]]:
    """Commands of the shell blocks, continued lines joined, comments and prompts taken off."""
    lines = [line for text in blocks(page, 'bash', 'sh', 'console') for line in text.replace('\\\n', ' ').splitlines()]
    lines = [line.strip().removeprefix('$ ') for line in lines]
    return [words for line in lines if line and not line.startswith('#') and (words := shlex.split(line, comments=True))]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """An empty folder with the bags of the project in it."""
    shutil.copytree(ROOT / 'rosbags', tmp_path / 'rosbags')
    return tmp_path


@pytest.mark.parametrize('page', [p for p in PAGES if blocks(p, 'python')], ids=lambda p: p.stem)
def test_python_of_the_page_runs(page, workplace):
    """All Python blocks of a page, one after another, in a process of its own."""
    code = '\n'.join(blocks(page, 'python'))
    environment = dict(os.environ, PYTHONPATH=str(ROOT), MPLBACKEND='Agg')
    done = subprocess.run(
        [sys.executable, '-c', code], cwd=workplace, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f'{page.name}:\n{done.stderr[-3000:]}'


def run_verb(words: list[str], workplace: Path) -> None:
    """A verb of the command line: run as it is; `up` for a moment only."""
    more = ['--seconds', '1'] if words[1] == 'up' and '--show-args' not in words else []
    environment = dict(
        os.environ, PYTHONPATH=str(ROOT), ROS_AUTOMATIC_DISCOVERY_RANGE='LOCALHOST', ROS_DOMAIN_ID=str(1 + os.getpid() % 100)
    )
    line = [sys.executable, '-m', 'multibody_estimation.cli', *words[1:], *more]
    done = subprocess.run(line, cwd=workplace, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f'{shlex.join(words)}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}'


def check_make(words: list[str], workplace: Path) -> None:
    """`make TARGET`: the target exists; what demo and test do is tested elsewhere."""
    done = subprocess.run(['make', '-n', *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def check_launch(words: list[str]) -> None:
    from multibody_estimation.nodes.bringup import resolve

    package, file, *arguments = words[2:]
    assert package == 'multibody_estimation' and (ROOT / 'launch' / file).is_file()
    resolve(file.removesuffix('.launch.py'), dict(a.split(':=', 1) for a in arguments if ':=' in a))


def check_call(words: list[str]) -> None:
    """A service or action call: the type exists and the request fits it."""
    import yaml

    kind, _, *rest = [w for w in words[2:] if not w.startswith('--')]
    name, type_name, *request = (_, *rest) if kind in ('call', 'send_goal') else (kind, _, *rest)
    pytest.importorskip('multibody_estimation.msg', reason='the messages are not built: `make build`')
    from importlib import import_module

    package, folder, cls = type_name.split('/')
    message = getattr(import_module(f'{package}.{folder}'), cls)
    made = message.Request() if folder == 'srv' else message.Goal()

    def fill(target, values):
        for key, value in values.items():
            assert hasattr(target, key), f'{type_name} has no field {key}'
            fill(getattr(target, key), value) if isinstance(value, dict) else setattr(target, key, value)

    fill(made, yaml.safe_load(request[0]) if request else {})


def check_ros2(words: list[str], workplace: Path) -> None:
    if words[1] == 'launch':
        check_launch(words)
    elif words[1] in ('service', 'action'):
        check_call(words)
    else:
        assert words[1] in ('bag', 'topic', 'node', 'run', 'lifecycle', 'param', 'interface'), words


def check_install(words: list[str], workplace: Path) -> None:
    """pip, apt-get, git and the like change the machine: they are only looked at."""
    assert words[0] in ('pip', 'apt-get', 'sudo', 'git', 'cd', 'source', 'colcon', 'python3', 'export', 'pre-commit'), words


HANDLERS = {'multibody-estimation': run_verb, 'make': check_make, 'ros2': check_ros2}


@pytest.mark.parametrize('page', [p for p in PAGES if commands(p)], ids=lambda p: p.stem)
def test_commands_of_the_page_run(page, workplace):
    for words in commands(page):
        HANDLERS.get(words[0], check_install)(words, workplace)


def test_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r'\]\(([^)#]+)[^)]*\)', page.read_text()):
            if '://' not in target:
                assert (page.parent / target).exists(), f'{page.name} links to {target}, which is not there'
