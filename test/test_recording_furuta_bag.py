# SPDX-License-Identifier: Apache-2.0
"""The bag that comes with the package: small, reproducible, and identification finds its truth."""

from pathlib import Path

import numpy as np
import pytest

import multibody_estimation as me
from multibody_estimation.hardware.furuta_bag import make_window
from multibody_estimation.identification import identify

BAG = Path(__file__).resolve().parents[1] / 'rosbags/furuta_chirp'


@pytest.fixture(scope='module')
def window():
    return me.read_bag(BAG)


def test_the_bag_is_small_and_whole(window):
    assert sum(f.stat().st_size for f in BAG.iterdir()) < 2_000_000
    assert len(window['encoders']) == len(window['command']) == 2000 and not window.defects
    assert window['command'].unit == 'N m' and window['encoders'].noise == (2e-3, 2e-3)


def test_the_bag_is_what_its_recipe_makes(window):
    again = make_window()
    for name in ('encoders', 'command'):
        np.testing.assert_array_equal(window[name].stamps, again[name].stamps)
        np.testing.assert_allclose(window[name].values, again[name].values, atol=1e-7)
    assert window.truth == again.truth


def test_identification_of_the_bag_gives_the_truth_within_three_standard_deviations(window):
    fit = identify(me.robots.furuta(), window)
    off = (fit.values - [window.truth[n] for n in fit.names]) / np.sqrt(np.diag(fit.covariance))
    assert fit.converged and len(off) == 13
    assert np.abs(off).max() < 3, dict(zip(fit.names, off))
    relative = np.sqrt(np.diag(fit.covariance)) / np.abs(fit.values)
    assert relative.max() < 0.01  # and the intervals are narrow enough to mean something
