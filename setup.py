# SPDX-License-Identifier: Apache-2.0
"""Plain Python installation: the core, the command line and the compiled kernels; CMakeLists.txt adds the messages."""

import os
from glob import glob

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

NAME = 'multibody_estimation'
NODES = ['driver', 'recorder', 'estimator', 'calibrator']
ROS = ['rclpy[fastrtps]', 'sensor-msgs', 'geometry-msgs', 'std-msgs', 'std-srvs', 'diagnostic-msgs', 'visualization-msgs',
       'lifecycle-msgs', 'rosgraph-msgs', 'trajectory-msgs', 'rosidl-default-runtime']  # fmt: skip
"""ROS 2 packages that the nodes import; the wheels of a distro are called ros-<distro>-<package>."""
WHEELS = {distro: [f'ros-{distro}-{package}' for package in ROS] for distro in ('kilted', 'jazzy')}
COMPILE = os.environ.get('MULTIBODY_ESTIMATION_KERNELS', '1') != '0'


class BuildKernels(build_ext):
    """Compile kernels/*.cc into one library; where that fails the pure-JAX twins serve."""

    def build_extension(self, ext):
        import jaxlib

        ext.include_dirs.append(os.path.join(os.path.dirname(jaxlib.__file__), 'include'))
        super().build_extension(ext)

    def get_export_symbols(self, ext):
        return []


KERNELS = Extension(
    f'{NAME}.kernels._kernels',
    sources=sorted(glob(f'{NAME}/kernels/*.cc')),
    depends=sorted(glob(f'{NAME}/kernels/*.h')),
    extra_compile_args=['-std=c++17', '-O3', f'-march={os.environ.get("MARCH", "native")}', '-fno-math-errno',
                        '-fno-trapping-math', '-ffp-contract=fast', '-w', '-pthread'],
    extra_link_args=['-pthread'],
    language='c++',
    optional=True,
)  # fmt: skip

setup(
    name=NAME,
    version='0.1.0',
    description='Parameters, states and wrenches of multibody systems, with honest uncertainty',
    license='Apache-2.0',
    python_requires='>=3.11,<3.14',
    packages=find_packages(include=[NAME, f'{NAME}.*']),
    package_data={NAME: ['**/*.yaml', '**/*.urdf', '**/*.html', '**/*.json', '**/*.js', '**/*.css', '**/*.svg', '**/*.h', '**/*.cc']},
    ext_modules=[KERNELS] if COMPILE else [],
    cmdclass={'build_ext': BuildKernels},
    install_requires=['jax>=0.5', 'numpy>=1.26', 'scipy>=1.11', 'transforms3d>=0.4.2', 'typer>=0.12', 'rich>=13', 'pyyaml>=6',
                      'yourdfpy>=0.0.56', 'rosbags>=0.11', 'mcap>=1.6', 'matplotlib>=3.8'],
    extras_require={
        'ros': WHEELS['kilted'],
        'ros-kilted': WHEELS['kilted'],
        'ros-jazzy': WHEELS['jazzy'],
        'hardware': ['pyserial>=3.5', 'python-can>=4.3'],
        'mujoco': ['mujoco', 'icub-models'],
        'study': ['dask[distributed]>=2024.1', 'pyarrow>=15'],
        'test': ['pytest>=8', 'pytest-xdist', 'pytest-timeout', 'hypothesis', 'ruff', 'mypy', 'types-PyYAML', 'pin', 'idyntree', 'icub-models', 'mujoco',
                 'example-robot-data', 'pyserial>=3.5', 'python-can>=4.3', 'colcon-core', 'colcon-cmake', 'colcon-ros', 'crocoddyl', 'selenium>=4',
                 'dask[distributed]>=2024.1', 'pyarrow>=15'],
        'bench': ['casadi', 'numba', 'pin', 'idyntree', 'icub-models', 'mujoco[sysid]', 'crocoddyl'],
        'docs': ['mkdocs-material>=9'],
    },
    entry_points={
        'console_scripts': ['multibody-estimation = multibody_estimation.cli:main'],
        # Other packages add devices to this group.
        'multibody_estimation.devices': [
            f'simulated = {NAME}.hardware.simulated:Simulated',
            f'serial = {NAME}.hardware.serial_furuta:SerialFuruta',
            f'can = {NAME}.hardware.can_strain:CanStrain',
            f'mujoco = {NAME}.hardware.mujoco_icub:MujocoIcub',
            f'simulated_strain = {NAME}.hardware.simulated_strain:SimulatedStrain',
            f'replay = {NAME}.hardware.replay:Replay',
        ],
    },
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{NAME}']),
        (f'share/{NAME}', ['package.xml']),
        (f'share/{NAME}/launch', sorted(glob('launch/*.launch.py'))),
        (f'share/{NAME}/config', sorted(glob('config/*.yaml') + glob('config/*.xml'))),
        (f'share/{NAME}/config/layouts', sorted(glob('config/layouts/*'))),
        (f'share/{NAME}/msg', sorted(glob('msg/*.msg'))),
        (f'lib/{NAME}', [f'scripts/{node}' for node in NODES]),
    ],
)  # fmt: skip
