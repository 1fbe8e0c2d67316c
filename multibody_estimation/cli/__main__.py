# SPDX-License-Identifier: Apache-2.0
from multibody_estimation.cli import main

main()
