# SPDX-License-Identifier: Apache-2.0
"""Run all benchmarks, or those named, and write their table: `python -m benchmarks [NAME ...]`.

Each runs alone as `python -m benchmarks.NAME` and prints as its last line one JSON object: `name`, `ours`, `peers`, `ratio` (ours over the
best peer) and `holds`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 1800
"""Seconds that one benchmark may take."""


def names() -> list[str]:
    """Modules of this folder that are benchmarks: they print a JSON line."""
    return sorted(p.stem for p in HERE.glob('*.py') if not p.stem.startswith('_') and "'holds'" in p.read_text().replace('"', "'")
                  and "__name__ == '__main__'" in p.read_text())  # fmt: skip


def run(name: str) -> dict:
    """Run one benchmark in its own process, show what it prints, return its last line."""
    print(f'== {name}', flush=True)
    begin, last = time.monotonic(), ''
    process = subprocess.Popen([sys.executable, '-m', f'benchmarks.{name}'], cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        print('  ', line, end='', flush=True)
        last = line if line.strip() else last
        if time.monotonic() - begin > LIMIT:
            process.kill()
    try:
        result = json.loads(last) if process.wait() == 0 else None
    except json.JSONDecodeError:
        result = None
    return {'name': name, 'ours': None, 'peers': {}, 'ratio': None, 'holds': False} | (result or {'error': 'it gave no result'})


def table(results: list[dict]) -> str:
    """The results as a Markdown table."""

    def show(x: object) -> str:
        if isinstance(x, dict):
            return ', '.join(f'{k} {show(v)}' for k, v in x.items())
        return '-' if x is None else f'{x:.3g}' if isinstance(x, float) else str(x)

    rows = ['| benchmark | ours | peers | ratio | holds |', '|---|---|---|---|---|']
    words = {True: 'yes', False: 'NO', None: 'not run'}
    for r in results:
        rows.append(
            f'| {r["name"]} | {show(r["ours"])} | {show(r["peers"])} | {show(r["ratio"])} | {words.get(r["holds"], r["holds"])} |'
        )
    return '\n'.join(rows)


def main() -> int:
    """Run and write benchmarks/results/table.md and results.json."""
    chosen = sys.argv[1:] or names()
    for name in chosen:
        if name not in names():
            print(f"There is no benchmark '{name}'. There are: {', '.join(names())}.", file=sys.stderr)
            return 2
    results = [run(name) for name in chosen]
    folder = HERE / 'results'
    folder.mkdir(exist_ok=True)
    (folder / 'results.json').write_text(json.dumps(results, indent=1))
    (folder / 'table.md').write_text(table(results) + '\n')
    print(f'\n{table(results)}\n\nWritten to {folder.relative_to(HERE.parent)}/table.md')
    return 0


if __name__ == '__main__':
    sys.exit(main())
