# SPDX-License-Identifier: Apache-2.0
"""Makes ``rosbags/furuta_chirp``: the simulated Furuta pendulum, excited by a chirp, recorded as a bag with its truth.

Run as ``python -m multibody_estimation.hardware.furuta_bag [FOLDER]``. The same call gives the same samples (to the rounding of the machine).
"""

import sys
from pathlib import Path

from multibody_estimation.hardware.collect import collect
from multibody_estimation.hardware.excitation import Excitation
from multibody_estimation.hardware.simulated import Simulated
from multibody_estimation.recording.write import write_bag
from multibody_estimation.window import Window

__all__ = ['make_window', 'make_bag']

EPOCH = 1_767_225_600_000_000_000
"""First stamp, ns: 1 January 2026, 0:00 UTC."""

EXCITATION = Excitation('chirp', amplitude=0.06, duration=10.0, ramp=0.5, low=0.3, high=3.0)
"""N m at the arm."""


def make_window(seed: int = 1) -> Window:
    """Ten seconds at 200 Hz with 2 mrad noise, from rest with the pendulum 0.4 rad off."""
    device = Simulated('furuta', rate=200.0, noise=2e-3, realtime=False, seed=seed, epoch=EPOCH)
    return collect(device, 10.0, excitation=EXCITATION)


def make_bag(path: str | Path) -> Path:
    """Write the bag; the folder must not exist."""
    return write_bag(path, make_window())


if __name__ == '__main__':
    print(f'Wrote {make_bag(sys.argv[1] if len(sys.argv) > 1 else "rosbags/furuta_chirp")}.')
