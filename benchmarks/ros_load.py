# SPDX-License-Identifier: Apache-2.0
"""Load on real DDS: 1 kHz JointState, 2 x 500 Hz Imu and 500 Hz force/torque for a minute, through recorder and estimator.

    python -m benchmarks.ros_load [SECONDS]

Holds when the recorder loses nothing, the estimator keeps its set rate, and no node's memory grows. There is no peer: `ratio` is the share
of samples lost.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SEED = 7
RATES = {
    '/joint_states': 1000,
    '/left/imu/data_raw': 500,
    '/right/imu/data_raw': 500,
    '/ft/leg/wrench': 500,
    '/applied_command': 1000,
}
TRACK_RATE = 20.0


def publish(seconds: float, go: str) -> None:
    """The load, in a process of its own: messages at their rates, with header stamps of now; prints how many it sent."""
    from multibody_estimation.nodes.start import prepare_environment

    prepare_environment()
    import rclpy
    from geometry_msgs.msg import WrenchStamped
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Imu, JointState

    from multibody_estimation.msg import ActuatorCommand

    rclpy.init()
    node = rclpy.create_node('load')
    absent = [-1.0, *[0.0] * 8]
    imu = {
        'orientation_covariance': absent,
        'linear_acceleration_covariance': np.eye(3).ravel() * 1e-4,
        'angular_velocity_covariance': np.eye(3).ravel() * 1e-6,
    }
    messages = {
        '/joint_states': JointState(name=['arm', 'pendulum'], position=[0.0, 0.0]),
        '/left/imu/data_raw': Imu(**imu),
        '/right/imu/data_raw': Imu(**imu),
        '/ft/leg/wrench': WrenchStamped(),
        '/applied_command': ActuatorCommand(joint_names=['arm'], values=[0.0]),
    }
    for m in messages.values():
        m.header.frame_id = 'load'
    publishers = {t: node.create_publisher(type(m), t, QoSProfile(depth=5000)) for t, m in messages.items()}
    while not Path(go).exists():
        time.sleep(0.02)
    rng = np.random.default_rng(SEED)
    noise = 2e-3 * rng.standard_normal((int(seconds * 1000) + 10, 2))
    sent = dict.fromkeys(RATES, 0)
    begin, wall = time.monotonic(), time.time_ns()
    late = 0.0
    for k in range(int(seconds * 1000)):
        due = begin + k / 1000
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        late = max(late, -wait)
        stamp = wall + k * 1_000_000
        for topic, rate in RATES.items():
            if k % (1000 // rate):
                continue
            m = messages[topic]
            m.header.stamp.sec, m.header.stamp.nanosec = divmod(stamp, 1_000_000_000)
            if topic == '/joint_states':
                t = k / 1000
                m.position = [0.3 * math.sin(7 * t) + noise[k, 0], 0.2 * math.sin(8 * t) + noise[k, 1]]
            publishers[topic].publish(m)
            sent[topic] += 1
    time.sleep(1.0)
    print(json.dumps({'sent': sent, 'late': late}))
    rclpy.shutdown()


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('VmRSS'):
            return int(line.split()[1]) / 1024
    return float('nan')


def processor(pid: int) -> float:
    """Processor time of a process in seconds."""
    fields = Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def measure(seconds: float) -> dict:
    """Bring up recorder and estimator, load them, count."""
    from multibody_estimation.nodes.client import Client
    from multibody_estimation.nodes.processes import Processes
    from multibody_estimation.recording.bag import read_bag

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topics = list(RATES)
        (folder / 'parameters.yaml').write_text(
            f'recorder:\n  ros__parameters: {{topics: {json.dumps(topics)}, buffer_seconds: 10.0}}\n'
            f'estimator:\n  ros__parameters: {{mode: track, sample_rate: 1000.0, track_seconds: 0.25, track_rate: {TRACK_RATE}, buffer_seconds: 10.0}}\n'
        )
        domain = random.SystemRandom().randint(1, 100)
        given = {
            'device': 'external',
            'mode': 'track',
            'data_folder': str(folder / 'data'),
            'params_file': str(folder / 'parameters.yaml'),
        }
        with (
            (folder / 'nodes.log').open('wb') as out,
            Processes('furuta', given, output=out, ROS_DOMAIN_ID=str(domain)) as processes,
            Client('soak', domain_id=domain) as client,
        ):
            from std_srvs.srv import Trigger

            from multibody_estimation.msg import MultibodyState

            client.wait(lambda: 'track: active' in (folder / 'nodes.log').read_text(), 120.0, 'the estimator', processes.failed)
            states: list[float] = []

            def state(message: MultibodyState) -> None:
                stamp = message.header.stamp.sec + message.header.stamp.nanosec * 1e-9
                states.append(time.time() - stamp)

            client.node.create_subscription(MultibodyState, '/estimator/state', state, 100)
            line = [sys.executable, '-m', 'benchmarks.ros_load', '--publish', str(seconds), str(folder / 'go')]
            load = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=processes.environment)
            assert client.call(Trigger, '/recorder/start').success
            client.wait(lambda: all(client.node.count_publishers(t) for t in topics), 30.0, 'the load')
            time.sleep(3.0)  # subscriptions find their publishers
            (folder / 'go').touch()
            pids = {n: p.pid for n, p in processes.running.items()}
            time.sleep(min(10.0, seconds / 3))
            early, used, began = (
                {n: resident(p) for n, p in pids.items()},
                {n: processor(p) for n, p in pids.items()},
                time.monotonic(),
            )
            said, _ = load.communicate(timeout=seconds + 60)
            spent = time.monotonic() - began
            result = json.loads(said.strip().splitlines()[-1])
            late = {n: resident(p) for n, p in pids.items()}
            share = {n: (processor(p) - used[n]) / spent for n, p in pids.items()}
            stopped = client.call(Trigger, '/recorder/stop', limit=60.0)
            path = stopped.message.removesuffix('.').split(' in ')[1]
            window = read_bag(path)
    names = {'/joint_states': 'encoders', '/applied_command': 'command', '/left/imu/data_raw': 'left/imu/gyroscope',
             '/right/imu/data_raw': 'right/imu/gyroscope', '/ft/leg/wrench': 'ft/leg/wrench'}  # fmt: skip
    lost = {t: result['sent'][t] - len(window[names[t]]) for t in topics}
    return {'lost': lost, 'sent': result['sent'], 'publisher_late_s': result['late'], 'growth_mb': {n: late[n] - early[n] for n in pids},
            'resident_mb': late, 'processor_share': share, 'states': len(states), 'states_expected': seconds * TRACK_RATE,
            'state_latency_ms': [float(np.percentile(np.array(states) * 1e3, p)) for p in (50, 99)] if states else []}  # fmt: skip


def main() -> None:
    """Run and print."""
    if sys.argv[1:2] == ['--publish']:
        publish(float(sys.argv[2]), sys.argv[3])
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    r = measure(seconds)
    print(f'{seconds:g} s, {sum(r["sent"].values())} messages, the publisher at most {1e3 * r["publisher_late_s"]:.1f} ms late')
    print(f'lost: {r["lost"]}')
    print(
        f'states {r["states"]} of {r["states_expected"]:g}; latency median, 99 % [ms]: {[round(x, 1) for x in r["state_latency_ms"]]}'
    )
    print(
        f'memory [MB]: { ({n: round(x) for n, x in r["resident_mb"].items()}) }, growth { ({n: round(x, 1) for n, x in r["growth_mb"].items()}) }'
    )
    print(f'share of one core: { ({n: round(x, 2) for n, x in r["processor_share"].items()}) }')
    total = sum(r['lost'].values())
    holds = total == 0 and r['states'] > 0.9 * r['states_expected'] and max(r['growth_mb'].values()) < 30
    print(
        json.dumps({'name': 'ros_load', 'ours': r, 'peers': {}, 'ratio': total / sum(r['sent'].values()), 'holds': bool(holds)})
    )


if __name__ == '__main__':
    main()
