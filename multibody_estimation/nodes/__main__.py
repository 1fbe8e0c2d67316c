# SPDX-License-Identifier: Apache-2.0
"""Start a node: `python -m multibody_estimation.nodes estimator --ros-args -p robot:=furuta`."""

import sys

from multibody_estimation.errors import did_you_mean
from multibody_estimation.nodes.start import NODES, start

if len(sys.argv) < 2 or sys.argv[1] not in NODES:
    name = sys.argv[1] if len(sys.argv) > 1 else ''
    sys.exit(f"There is no node '{name}'.{did_you_mean(name, NODES)}")
start(sys.argv[1], sys.argv[1:])
