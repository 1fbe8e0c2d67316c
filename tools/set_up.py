# SPDX-License-Identifier: Apache-2.0
"""Set up the project in a virtual environment: packages from PyPI, ROS 2 from its wheels or the sourced one, messages, kernels.

    python3 tools/set_up.py [--extras test,bench] [--total 4]

Only the standard library is used, every step is skipped when nothing it depends on has changed, and a failure ends with one sentence.
"""

from __future__ import annotations  # an older Python must get as far as the sentence that refuses it

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get('VENV', ROOT / '.venv')).absolute()
BUILD = VENV / 'build'
PYTHONS = ((3, 11), (3, 13))
DISTROS = ('kilted', 'jazzy')
BUILD_WHEELS = ['ament-package', 'ament-cmake', 'ament-cmake-python', 'ament-cmake-include-directories', 'rosidl-core-generators',
                'rosidl-default-generators']  # fmt: skip
"""What the ROS wheels need to generate messages but do not list among their requirements."""
MORE_BUILD_WHEELS = {
    'kilted': ['ament-cmake-ros-core'],
    'jazzy': [
        'python-cmake-module',
        'ament-cmake-ros',
        'ament-cmake-gmock',
        'ament-cmake-gtest',
        'ament-cmake-pytest',
        'gmock-vendor',
        'gtest-vendor',
    ],
}


class Stop(Exception):
    """Something is missing; the message says what, and how to get it."""


def check_machine() -> str | None:
    """Refuse what cannot work; return the distro of a sourced ROS 2, or None."""
    low, high = PYTHONS
    here = sys.version_info[:2]
    if not low <= here <= high:
        raise Stop(f'Python {here[0]}.{here[1]} is not supported: use 3.11 to 3.13, for example `make PYTHON=python3.11`.')
    for tool, package in [
        ('cmake', 'cmake'),
        (os.environ.get('CC', 'cc'), 'gcc'),
        (os.environ.get('CXX', 'c++'), 'g++'),
        ('make', 'make'),
    ]:
        if not shutil.which(tool):
            raise Stop(
                f"'{tool}' is not installed: the messages and kernels are compiled with it. On Debian or Ubuntu: apt-get install {package}"
            )
    distro = os.environ.get('ROS_DISTRO')
    if distro and distro not in DISTROS:
        raise Stop(
            f"The sourced ROS 2 is '{distro}', supported are {' and '.join(DISTROS)}. Source one of these, or unset ROS_DISTRO to use the wheels."
        )
    wheels = os.environ.get('ROS_WHEELS', DISTROS[0])
    if not distro and wheels not in DISTROS:
        raise Stop(f"ROS_WHEELS is '{wheels}'; it can be {' or '.join(DISTROS)}.")
    if distro and subprocess.run([sys.executable, '-c', 'import rclpy'], capture_output=True).returncode:
        raise Stop(
            f"ROS_DISTRO is '{distro}', but {sys.executable} cannot import rclpy. Source /opt/ros/{distro}/setup.bash and use its Python, or unset ROS_DISTRO."
        )
    return distro


class Step:
    """One numbered line of progress: `[2/4] packages ....... done 71 s`."""

    def __init__(self, number: int, total: int, title: str) -> None:
        self.head = f'[{number}/{total}] {title} '.ljust(40, '.')
        self.begin = time.monotonic()

    def show(self, text: str, *, end: bool = False) -> None:
        if sys.stdout.isatty():
            print(f'\r{self.head} {text}'.ljust(78), end='\n' if end else '', flush=True)
        elif end:
            print(f'{self.head} {text}', flush=True)

    def done(self, word: str = 'done') -> None:
        self.show(f'{word} {time.monotonic() - self.begin:.0f} s' if word == 'done' else word, end=True)

    def run(self, command: list, log: Path, failure: str, **more) -> None:
        """Run a command with its output in a file, showing the seconds; on failure show its last lines and stop."""
        with log.open('ab') as out:
            process = subprocess.Popen([str(c) for c in command], stdout=out, stderr=subprocess.STDOUT, **more)
            told = time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                self.show(f'{time.monotonic() - self.begin:.0f} s')
                if not sys.stdout.isatty() and time.monotonic() - told > 20:
                    told = time.monotonic()
                    print(f'      ... {last_line(log)}', flush=True)
        if process.returncode:
            self.show('failed', end=True)
            sys.stdout.write(''.join(log.read_text(errors='replace').splitlines(keepends=True)[-25:]))
            raise Stop(f'{failure} The whole output is in {os.path.relpath(log)}.')


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors='replace').splitlines() if line.strip()]
    return lines[-1].strip()[:100] if lines else 'starting'


def digest(*parts: object) -> str:
    """Hash of texts and of the contents of files."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part.read_bytes() if isinstance(part, Path) else str(part).encode())
    return h.hexdigest()


def fresh(name: str, value: str) -> bool:
    """Whether a step was done before with the same ingredients."""
    stamp = VENV / f'.{name}.stamp'
    return stamp.exists() and stamp.read_text() == value


def remember(name: str, value: str) -> None:
    (VENV / f'.{name}.stamp').write_text(value)


def clean_environment() -> dict[str, str]:
    """The environment of the commands below: that of the virtual environment, not of a Python that called this one."""
    env = {
        k: v for k, v in os.environ.items() if k not in ('_ROS_WHEELS_BOOTSTRAP_COMPLETE', 'PYTHONHOME', 'MAKEFLAGS', 'MFLAGS')
    }
    env['VIRTUAL_ENV'] = str(VENV)
    env['PATH'] = f'{VENV / "bin"}{os.pathsep}{env["PATH"]}'
    return env


def patch_exports(folder: Path) -> None:
    """Replace the Python headers of the machine the wheels were built on by those of this one."""
    ask = 'import sysconfig, numpy; print(sysconfig.get_path("include")); print(numpy.get_include())'
    python, numpy = subprocess.run(
        [folder / 'bin' / 'python', '-c', ask], capture_output=True, text=True, check=True
    ).stdout.split()
    for path in folder.glob('share/*/cmake/*.cmake'):
        text = path.read_text()
        if '/opt/python' in text:
            text = re.sub(r'/opt/python/[^/;"]+/lib/python[0-9.]+/site-packages/numpy[^;"]*', numpy, text)
            path.write_text(re.sub(r'/opt/python/[^/;"]+/include/python[0-9.]+', python, text))


def make_venv(step: Step, distro: str | None) -> None:
    """Create the virtual environment; with a sourced ROS 2 it sees the system's packages, where rclpy may need them."""
    ingredients = digest(sys.version, distro)
    if fresh('venv', ingredients) and (VENV / 'bin' / 'python').exists():
        return step.done('ready')
    try:
        venv.EnvBuilder(with_pip=True, symlinks=True, clear=True, system_site_packages=distro is not None).create(VENV)
    except (OSError, subprocess.CalledProcessError, SystemExit) as error:
        raise Stop(
            f'The virtual environment could not be made ({error}). On Debian or Ubuntu: apt-get install python3-venv'
        ) from error
    remember('venv', ingredients)
    return step.done()


def install_packages(step: Step, distro: str | None, extras: set[str]) -> None:
    """Install what setup.py requires; the ROS wheels only where no ROS 2 is sourced."""
    seen = VENV / '.extras'
    extras = extras | set(seen.read_text().split() if seen.exists() else [])
    wheels = os.environ.get('ROS_WHEELS', DISTROS[0])
    names = extras | (set() if distro else {f'ros-{wheels}'})
    ingredients = digest(ROOT / 'setup.py', ROOT / 'pyproject.toml', sorted(names), BUILD_WHEELS, MORE_BUILD_WHEELS)
    if fresh('packages', ingredients):
        return step.done('ready')
    log = VENV / 'packages.log'
    log.unlink(missing_ok=True)
    pip = [VENV / 'bin' / 'python', '-m', 'pip', '--disable-pip-version-check', 'install', '--no-input']
    failure = 'Packages could not be installed: is the package index reachable?'
    build = ['setuptools>=77', 'wheel', 'jaxlib>=0.5']
    if not distro:
        build += [f'ros-{wheels}-{p}' for p in BUILD_WHEELS] + ['empy==3.3.4', 'lark', 'catkin_pkg', 'numpy']
        build += [f'ros-{wheels}-{p}' for p in MORE_BUILD_WHEELS[wheels]]
    env = clean_environment()
    step.run([*pip, *build], log, failure, env=env)
    # CMake compiles the kernels in the next step, with all cores; pip need not.
    env['MULTIBODY_ESTIMATION_KERNELS'] = '0'
    step.run([*pip, '--no-build-isolation', f'.[{",".join(sorted(names))}]' if names else '.'], log, failure, env=env, cwd=ROOT)
    if not distro:
        patch_exports(VENV)
    seen.write_text(' '.join(sorted(extras)))
    remember('packages', ingredients)
    (VENV / '.build.stamp').unlink(missing_ok=True)
    return step.done()


def build(step: Step, distro: str | None) -> None:
    """Generate the messages, compile the kernels and install all of the package with CMake, as colcon does."""
    folders = ['multibody_estimation', 'msg', 'srv', 'action', 'launch', 'config', 'scripts']
    files = sorted(p for f in folders for p in (ROOT / f).rglob('*') if p.is_file() and p.suffix not in ('.pyc', '.so', '.o'))
    ingredients = digest(ROOT / 'CMakeLists.txt', ROOT / 'package.xml', *[x for p in files for x in (p.relative_to(ROOT), p)])
    if fresh('build', ingredients):
        return step.done('ready')
    env = clean_environment()
    if not distro:
        env |= {'CMAKE_PREFIX_PATH': str(VENV), 'AMENT_PREFIX_PATH': str(VENV), 'PYTHONPATH': ''}
    env['LD_LIBRARY_PATH'] = os.pathsep.join(filter(None, [str(VENV / 'lib'), env.get('LD_LIBRARY_PATH')]))
    log = VENV / 'build.log'
    log.unlink(missing_ok=True)
    failure = 'The messages or kernels could not be built.'
    site = next((VENV / 'lib').glob('python3*/site-packages')).relative_to(VENV)
    configure = ['cmake', '-S', ROOT, '-B', BUILD, f'-DCMAKE_INSTALL_PREFIX={VENV}', f'-DPython3_EXECUTABLE={VENV / "bin" / "python"}',
                 '-DPython3_FIND_VIRTUALENV=ONLY', '-DBUILD_TESTING=OFF', '-DCMAKE_BUILD_TYPE=Release', f'-DPYTHON_INSTALL_DIR={site}']  # fmt: skip
    step.run(configure, log, failure, env=env)
    step.run(['cmake', '--build', BUILD, '--parallel', os.cpu_count() or 1], log, failure, env=env)
    # Modules that are gone from the sources must not live on in the environment.
    for old in (VENV / site / 'multibody_estimation').rglob('*.py'):
        relative = old.relative_to(VENV / site / 'multibody_estimation')
        if relative.parts[0] not in ('msg', 'srv', 'action') and not (ROOT / 'multibody_estimation' / relative).exists():
            old.unlink()
    step.run(['cmake', '--install', BUILD], log, failure, env=env)
    remember('build', ingredients)
    return step.done()


def main() -> int:
    """Run the three steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--extras', default='', help='extras of setup.py to install besides the core and ROS, e.g. test,bench')
    parser.add_argument('--total', type=int, default=3, help='number of steps to show, when the caller adds some')
    arguments = parser.parse_args()
    try:
        distro = check_machine()
        make_venv(Step(1, arguments.total, 'virtual environment'), distro)
        install_packages(Step(2, arguments.total, 'packages'), distro, {e for e in arguments.extras.split(',') if e})
        build(Step(3, arguments.total, 'messages and kernels'), distro)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\nInterrupted; run it again to go on where it stopped.', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
