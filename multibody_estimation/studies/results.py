# SPDX-License-Identifier: Apache-2.0
"""The results of a study as one Parquet file: a row for each run, a column for each setting, parameter and standard deviation."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multibody_estimation.errors import EstimationError
from multibody_estimation.studies.journal import refused

__all__ = ['check_parquet', 'write_parquet']

ALWAYS = {
    'key': str, 'status': str, 'why': str, 'recording': str, 'robot': str, 'start': str, 'weight': float, 'step': float, 'seconds': float,
    'iterations': int, 'cost': float, 'finished': str, 'host': str, 'process': int, 'version': str,
}  # fmt: skip


def check_parquet() -> None:
    """Say at once where pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise EstimationError(
            f"A study needs pyarrow ({error}). Install it: pip install 'multibody_estimation[study]'."
        ) from None


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> Path:
    """Write the file whole or not at all.

    Parameter columns are called by the dotted name, ``<name> std`` is the standard deviation; their unit is in the metadata of the field.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}
    fields, columns = [], []

    def add(name: str, kind: Any, values: list[Any], unit: str = '') -> None:
        fields.append(pa.field(name, kind, metadata={'unit': unit} if unit else None))
        columns.append(pa.array(values, type=kind))

    for name, kind in ALWAYS.items():
        # A setting that was asked for stands in failed rows too.
        add(name, types[kind], [row.get(name, row['settings'].get(name)) for row in rows])
    for name in dict.fromkeys(k for row in rows for k in row['settings'] if k not in ALWAYS):
        known = [row['settings'].get(name) for row in rows]
        add(name, types[type(next(v for v in known if v is not None))], known)
    for name, unit in {n: p['unit'] for row in rows for n, p in row.get('parameters', {}).items()}.items():
        found = [row.get('parameters', {}).get(name) for row in rows]
        add(name, pa.float64(), [p and p['value'] for p in found], unit)
        add(f'{name} std', pa.float64(), [p and p['std'] for p in found], unit)
    for name in dict.fromkeys(k for row in rows for k in row.get('noise_ratio', ())):
        add(f'{name} noise ratio', pa.float64(), [row.get('noise_ratio', {}).get(name) for row in rows])
    part = path.with_name(f'.{path.name}.{os.getpid()}.part')
    try:
        with part.open('wb') as file:
            pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise refused(path, error) from None
    return path
