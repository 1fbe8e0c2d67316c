# SPDX-License-Identifier: Apache-2.0
"""`BagWriter`: rosbag2 folders in MCAP that `ros2 bag`, Foxglove and PlotJuggler open, and that survive a kill -9."""

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from mcap.writer import CompressionType, Writer

from multibody_estimation.errors import EstimationError
from multibody_estimation.recording.definitions import typestore

__all__ = ['BagWriter']

VERSION = 8
"""Format of metadata.yaml that every distribution from Humble on reads (9 writes QoS in a way Humble does not know)."""

FOREVER = {'sec': 9223372036, 'nsec': 854775807}


def quality(*, reliable: bool, transient_local: bool = False, depth: int = 10) -> str:
    """QoS of a topic as rosbag2 stores it (a YAML text with the numbers of rmw)."""
    profile = {
        'history': 1, 'depth': depth, 'reliability': 1 if reliable else 2, 'durability': 1 if transient_local else 2,
        'deadline': dict(FOREVER), 'lifespan': dict(FOREVER), 'liveliness': 1, 'liveliness_lease_duration': dict(FOREVER),
        'avoid_ros_namespace_conventions': False,
    }  # fmt: skip
    return yaml.safe_dump([profile], sort_keys=False).strip()


class BagWriter:
    """Writes one bag folder; safe to call from several threads.

    Every ``flush_every`` seconds a background thread closes the current chunk, hands it to the operating system and renews
    metadata.yaml, so that a process that is killed loses at most that much. `close` writes the index.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        flush_every: float = 0.5,
        compression: str = 'lz4',
        custom: Mapping[str, str] | None = None,
        types: Any = None,
    ):
        """Create the folder.

        path: the folder to make; it must not exist yet. flush_every: seconds. compression: ``lz4``, ``zstd`` or ``none``.
        custom: texts for ``custom_data`` of metadata.yaml. types: a `rosbags` type store; default: standard and our own.
        """
        self.path = Path(path)
        kinds = {'lz4': CompressionType.LZ4, 'zstd': CompressionType.ZSTD, 'none': CompressionType.NONE}
        if compression not in kinds:
            raise EstimationError(f"compression '{compression}' is unknown; use one of {', '.join(kinds)}.")
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            raise EstimationError(f'{self.path} exists already and is not overwritten. Choose another name.') from None
        except OSError as error:
            raise EstimationError(f'Cannot create the bag {self.path}: {error.strerror}.') from error
        self.file = self.path / f'{self.path.name}_0.mcap'
        self._types = typestore() if types is None else types
        self._custom = dict(custom or {})
        self._stream = self.file.open('xb')
        self._writer = Writer(self._stream, compression=kinds[compression])
        self._writer.start(profile='ros2', library='multibody_estimation')
        self._lock = threading.RLock()
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        self._info: dict[str, dict[str, Any]] = {}
        self._first, self._last = 2**63 - 1, 0
        self._dirty, self._closed = True, False
        self.failure = ''
        """Why the background thread could not flush (a full disk, say); empty while all is well."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._flush_often, args=(flush_every,), daemon=True, name='bag-flush')
        self.flush()
        self._thread.start()

    def add_topic(self, topic: str, message_type: str, *, reliable: bool = True, transient_local: bool = False) -> None:
        """Declare a topic; ``write`` does it where it was not done."""
        with self._lock:
            if topic in self._info:
                if self._info[topic]['type'] != message_type:
                    raise EstimationError(f'{topic} is already recorded as {self._info[topic]["type"]}, not as {message_type}.')
                return
            if message_type not in self._types.fielddefs:
                raise EstimationError(f'{topic}: the message type {message_type} is unknown here and cannot be recorded.')
            text, _ = self._types.generate_msgdef(message_type, ros_version=2)
            digest = self._types.hash_rihs01(message_type)
            profile = quality(reliable=reliable, transient_local=transient_local)
            if message_type not in self._schemas:
                self._schemas[message_type] = self._writer.register_schema(message_type, 'ros2msg', text.encode())
            self._channels[topic] = self._writer.register_channel(
                topic, 'cdr', self._schemas[message_type], {'offered_qos_profiles': profile, 'topic_type_hash': digest}
            )
            self._info[topic] = {'type': message_type, 'qos': profile, 'hash': digest, 'count': 0}

    def write(self, topic: str, message_type: str, log_time: int, data: bytes | memoryview) -> None:
        """Append a serialised message (CDR with its 4-byte head, as a raw subscription gives it).

        log_time: when it was received, in nanoseconds.
        """
        with self._lock:
            if self._closed:
                raise EstimationError(f'{self.path} is closed; nothing more can be written to it.')
            if topic not in self._channels:
                self.add_topic(topic, message_type)
            info = self._info[topic]
            try:
                self._writer.add_message(self._channels[topic], log_time, bytes(data), log_time, info['count'])
            except OSError as error:
                raise EstimationError(self._fail(error)) from error
            info['count'] += 1
            self._first, self._last = min(self._first, log_time), max(self._last, log_time)
            self._dirty = True

    def write_message(self, topic: str, message: Any, log_time: int) -> None:
        """Append a message made of the type store's classes."""
        kind = message.__msgtype__
        self.write(topic, kind, log_time, self._types.serialize_cdr(message, kind))

    def flush(self) -> None:
        """Hand everything written so far to the operating system; metadata.yaml tells of it."""
        with self._lock:
            if self._closed or not self._dirty:
                return
            self._writer.flush()
            self._write_metadata()
            self._dirty = False

    @property
    def counts(self) -> dict[str, int]:
        """Messages written so far, by topic."""
        with self._lock:
            return {topic: info['count'] for topic, info in self._info.items()}

    def close(self) -> None:
        """Write the index and the final metadata; calling it again does nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._writer.flush()
                inner = self._metadata()['rosbag2_bagfile_information']
                self._writer.add_metadata('rosbag2', {'serialized_metadata': yaml.safe_dump(inner, sort_keys=False)})
                self._writer.finish()
                self._stream.close()
                self._write_metadata()
            except OSError as error:
                raise EstimationError(self._fail(error)) from error

    def __enter__(self) -> 'BagWriter':
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fail(self, error: OSError) -> str:
        self.failure = f'{self.path} could not be written: {error.strerror}. What was flushed before is safe.'
        return self.failure

    def _flush_often(self, period: float) -> None:
        due = time.monotonic() + period
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + period
            try:
                self.flush()
            except OSError as error:
                self._fail(error)

    def _metadata(self) -> dict[str, Any]:
        count = sum(info['count'] for info in self._info.values())
        span = {'nanoseconds': max(0, self._last - self._first) if count else 0}
        start = {'nanoseconds_since_epoch': self._first if count else 0}
        topics = [
            {
                'topic_metadata': {
                    'name': topic,
                    'type': info['type'],
                    'serialization_format': 'cdr',
                    'offered_qos_profiles': info['qos'],
                    'type_description_hash': info['hash'],
                },
                'message_count': info['count'],
            }
            for topic, info in self._info.items()
        ]
        return {
            'rosbag2_bagfile_information': {
                'version': VERSION,
                'storage_identifier': 'mcap',
                'duration': span,
                'starting_time': start,
                'message_count': count,
                'topics_with_message_count': topics,
                'compression_format': '',
                'compression_mode': '',
                'relative_file_paths': [self.file.name],
                'files': [{'path': self.file.name, 'starting_time': dict(start), 'duration': dict(span), 'message_count': count}],
                'custom_data': dict(self._custom) or None,
                'ros_distro': '',
            }
        }

    def _write_metadata(self) -> None:
        target = self.path / 'metadata.yaml'
        other = target.with_suffix('.yaml.tmp')
        other.write_text(yaml.safe_dump(self._metadata(), sort_keys=False), encoding='utf-8')
        os.replace(other, target)
