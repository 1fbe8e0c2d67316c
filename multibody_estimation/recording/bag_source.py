# SPDX-License-Identifier: Apache-2.0
"""Raw messages of a bag: MCAP files read from front to back whatever state they are in, everything else through `rosbags`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from multibody_estimation.errors import EstimationError, did_you_mean
from multibody_estimation.recording.topics import TABLE

__all__ = ['Source', 'open_bag']


@dataclass
class Source:
    """Raw messages of a bag."""

    topics: dict[str, str]
    """Topic to message type."""
    definitions: dict[str, str]
    """Definitions stored with the bag: message type to text (ros2msg)."""
    messages: Iterator[tuple[str, int, bytes]]
    """Topic, log time in nanoseconds, serialised message (CDR), in the order they were written."""
    notes: list[str] = field(default_factory=list)
    """What is wrong with the file, as sentences; complete when ``messages`` is exhausted."""
    custom: dict[str, str] = field(default_factory=dict)
    """``custom_data`` of metadata.yaml."""


def open_bag(path: str | Path) -> Source:
    """Open a bag folder or a single .mcap file; complete, damaged, or left behind by a recorder that was killed."""
    path = Path(path)
    if not path.exists():
        raise EstimationError(f'There is no bag at {path}.{did_you_mean(path.name, [p.name for p in _siblings(path)])}')
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in ('.mcap', '.db3', '.zstd'))
    if not files:
        raise EstimationError(f'{path} is no bag: it holds no .mcap and no .db3 file. Give the folder that ros2 bag record made.')
    information = _information(path)
    if all(f.suffix == '.mcap' for f in files) and not information.get('compression_mode'):
        # Without the index: file order is the order of arrival, and what is damaged costs only itself.
        return _scan(files, path, information)
    if not information:
        raise EstimationError(f'{path} has no readable metadata.yaml. Run `ros2 bag reindex {path}`, then read it again.')
    return _indexed(path, information)


def _siblings(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir()) if path.parent.is_dir() else []


def _information(path: Path) -> dict[str, Any]:
    """What metadata.yaml says; empty where there is none or it cannot be read."""
    try:
        content = yaml.safe_load((path / 'metadata.yaml').read_text(encoding='utf-8'))
        found = content['rosbag2_bagfile_information']
        return dict(found) if isinstance(found, dict) else {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return {}


def _custom(information: dict[str, Any]) -> dict[str, str]:
    custom = information.get('custom_data')
    return {str(k): str(v) for k, v in custom.items()} if isinstance(custom, dict) else {}


def _indexed(path: Path, information: dict[str, Any]) -> Source:
    """Bags in sqlite3, and those that rosbag2 compressed as a whole or message by message."""
    from rosbags.interfaces import MessageDefinitionFormat
    from rosbags.rosbag2 import Reader

    try:
        reader = Reader(path)
        reader.open()
    except Exception as error:  # the library lets every kind of error through that a damaged file can cause
        raise EstimationError(f'{path} cannot be read as a rosbag2 folder: {error}') from error
    source = Source(
        {c.topic: c.msgtype for c in reader.connections},
        {c.msgtype: c.msgdef.data for c in reader.connections if c.msgdef.format == MessageDefinitionFormat.MSG},
        iter(()),
        custom=_custom(information),
    )

    def messages() -> Iterator[tuple[str, int, bytes]]:
        wanted = [c for c in reader.connections if c.msgtype in TABLE]
        try:
            for connection, log_time, raw in reader.messages(connections=wanted) if wanted else ():
                yield connection.topic, log_time, raw
        except Exception as error:  # as above
            source.notes.append(f'{path} is damaged ({error}); what came before was read.')
        finally:
            reader.close()

    source.messages = messages()
    return source


def _scan(files: list[Path], path: Path, information: dict[str, Any]) -> Source:
    """MCAP files from front to back, as far as they go: no metadata, no index, no end needed."""
    from mcap.records import Channel, Chunk, Footer, Message, Schema
    from mcap.stream_reader import StreamReader, breakup_chunk

    source = Source({}, {}, iter(()), custom=_custom(information))
    found: list[tuple[str, int, bytes]] = []
    for file in files:
        schemas: dict[int, tuple[str, str, str]] = {}
        channels: dict[int, tuple[str, int]] = {}
        raw: list[tuple[int, int, bytes]] = []
        broken, ended, problem = 0, False, ''

        def take(record: Any, schemas: dict = schemas, channels: dict = channels, raw: list = raw) -> None:
            if isinstance(record, Message):
                raw.append((record.channel_id, record.log_time, record.data))
            elif isinstance(record, Schema):
                schemas[record.id] = (record.name, record.encoding, record.data.decode())
            elif isinstance(record, Channel):
                channels[record.id] = (record.topic, record.schema_id)

        with file.open('rb') as stream:
            try:
                for record in StreamReader(stream, emit_chunks=True, record_size_limit=1 << 30).records:
                    if isinstance(record, Chunk):
                        try:
                            inside = breakup_chunk(record, validate_crc=True)
                        except Exception:  # decompression and checksum fail in many ways; the next chunk may be sound
                            broken += 1
                            continue
                        for one in inside:
                            take(one)
                    else:
                        take(record)
                        ended = ended or isinstance(record, Footer)
            except Exception as error:  # a file cut anywhere, or with any byte changed, ends here
                problem = f'{type(error).__name__} {error}'.strip()
        for number, log_time, data in raw:
            topic, schema = channels.get(number, ('', 0))
            name, encoding, text = schemas.get(schema, ('', '', ''))
            if topic and name:
                if topic not in source.topics:
                    source.topics[topic] = name
                    if encoding == 'ros2msg':
                        source.definitions.setdefault(name, text)
                found.append((topic, log_time, data))
        for topic, schema in channels.values():
            source.topics.setdefault(topic, schemas.get(schema, ('', '', ''))[0])
        if broken:
            source.notes.append(f'{file.name} is damaged: {broken} of its chunks were left out.')
        if not _finished(file):
            source.notes.append(
                f'{file.name} has no end: the recorder was stopped hard. Everything up to its last flush was read.'
            )
        elif problem and not ended:
            source.notes.append(f'{file.name} is damaged ({problem}); what came before was read.')
    source.messages = iter(found)
    return source


def _finished(file: Path) -> bool:
    with file.open('rb') as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 8))
        return size > 16 and stream.read() == b'\x89MCAP0\r\n'
