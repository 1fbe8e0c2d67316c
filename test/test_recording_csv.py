# SPDX-License-Identifier: Apache-2.0
"""CSV files: units, signs and offsets as the mapping says, and errors that name the column and the row."""

import os
from pathlib import Path

import numpy as np
import pytest
import yaml

import multibody_estimation as me
from multibody_estimation.errors import EstimationError

TEXT = 't;theta;phi;u\n0;0;180;1.5\n5;90;190;-2\n10;180;170;\n15;270;200;3\n'
MAPPING = {
    'time': {'column': 't', 'unit': 'ms'},
    'delimiter': ';',
    'signals': {
        'encoders': {
            'unit': 'deg',
            'noise': 0.1,
            'columns': {'arm': 'theta', 'pendulum': {'column': 'phi', 'sign': -1, 'offset': -180}},
        },
        'command': {'unit': 'mV', 'columns': {'arm': 'u'}},
    },
    'truth': {'arm.damping': 0.5},
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / 'run.csv'
    path.write_text(TEXT)
    return path


def test_units_signs_offsets_and_missing_cells(file):
    window = me.read_csv(file, MAPPING)
    encoders = window['encoders']
    np.testing.assert_allclose(encoders.column('arm'), np.radians([0, 90, 180, 270]))
    np.testing.assert_allclose(encoders.column('pendulum'), -np.radians([0, 10, -10, 20]), atol=1e-15)
    assert encoders.unit == 'rad' and encoders.stamps.tolist() == [0, 5_000_000, 10_000_000, 15_000_000]
    np.testing.assert_allclose(encoders.noise, np.radians([0.1, 0.1]))
    assert window['command'].unit == 'V' and window['command'].stamps.tolist() == [0, 5_000_000, 15_000_000]
    np.testing.assert_allclose(window['command'].values[:, 0], [1.5e-3, -2e-3, 3e-3])
    assert window.truth == {'arm.damping': 0.5}


def test_the_mapping_may_stand_in_a_yaml_file(file, tmp_path):
    (tmp_path / 'columns.yaml').write_text(yaml.safe_dump(MAPPING))
    a, b = me.read_csv(file, MAPPING), me.read_csv(file, tmp_path / 'columns.yaml')
    np.testing.assert_array_equal(a['encoders'].values, b['encoders'].values)


def test_seconds_since_1970_keep_their_microseconds(tmp_path):
    (tmp_path / 'a.csv').write_text('t,x\n1700000000.000001,1\n1700000000.000501,2\n')
    window = me.read_csv(tmp_path / 'a.csv', {'time': 't', 'signals': {'x': {'columns': ['x']}}})
    assert abs(int(window['x'].stamps[1] - window['x'].stamps[0]) - 500_000) < 500


@pytest.mark.parametrize(
    ('change', 'sentence'),
    [
        (lambda m: m['signals']['encoders']['columns'].update(arm='thetta'), "no column 'thetta'. Did you mean 'theta'"),
        (lambda m: m.update(sgnals=1), "unknown key 'sgnals'. Did you mean 'signals'"),
        (lambda m: m['signals']['encoders'].update(units='deg'), "signal encoders: unknown key 'units'. Did you mean 'unit'"),
        (lambda m: m['time'].update(unit='min'), "unit 'min' is unknown"),
        (lambda m: m.pop('time'), 'which column is the time'),
        (lambda m: m['signals']['encoders']['columns']['pendulum'].update(sign=2), 'sign must be 1 or -1'),
        (lambda m: m['signals']['encoders']['columns']['pendulum'].update(unit='V'), 'different units (V, rad)'),
    ],
)
def test_what_is_wrong_in_the_mapping_is_named(file, change, sentence):
    mapping = yaml.safe_load(yaml.safe_dump(MAPPING))
    change(mapping)
    with pytest.raises(EstimationError) as error:
        me.read_csv(file, mapping)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ('text', 'sentence'),
    [
        (TEXT.replace('190', 'abc'), "row 2 (line 3), column 'phi': 'abc' is no number"),
        (TEXT.replace('5;90;190;-2', '5;90;190'), 'row 2 (line 3): 3 cells, the header has 4'),
        (TEXT.replace('10;180', ';180'), "row 3, column 't': the time is missing"),
        ('t;theta;phi;u\n', 'no rows'),
    ],
)
def test_what_is_wrong_in_the_file_is_named_by_row_and_column(file, text, sentence):
    file.write_text(text)
    with pytest.raises(EstimationError) as error:
        me.read_csv(file, MAPPING)
    assert sentence in str(error.value)


def test_a_recording_of_a_real_pendulum_is_read():
    root = os.environ.get('MULTIBODY_ESTIMATION_DATA')
    files = sorted(Path(root, 'qube').rglob('*chrip*/*.csv')) if root else []
    if not files:
        pytest.skip('set MULTIBODY_ESTIMATION_DATA to the folder that holds qube/')
    mapping = {'time': 't', 'signals': {'encoders': {'unit': 'rad', 'columns': {'arm': 'q0', 'pendulum': 'q1'}}, 'command': {'unit': 'V', 'columns': {'arm': 'u_volt'}}}}  # fmt: skip
    window = me.read_csv(files[0], mapping)
    assert abs(window['encoders'].rate - 250) < 1 and window.duration > 9 and window['command'].unit == 'V'
    steps = np.diff(window['encoders'].values, axis=0) / (2 * np.pi / 2048)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-2)  # an encoder with 2048 counts per turn, as it is
