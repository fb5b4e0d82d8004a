# SPDX-License-Identifier: Apache-2.0
"""The topics of this broker: their queues and permissions, kept in topics.json.

What an operator puts is taken back when it cannot be saved. A topic made by its first message stays: the message is in
the log, and a start finds a topic that has messages, if not how many queues it was given.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.state.static_topics import StaticTopics
from aerobee.errors import InvalidParameter, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.bodies import DataVersion, TopicConfig, TopicConfigs, decode
from aerobee.protocol.codes import Perm
from aerobee.store.metadata import JsonFile
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.topics")

# Plain integers, for they end up in settings that every request looks at: an IntFlag's & is a slow call.
READ_WRITE = int(Perm.READ | Perm.WRITE)
INHERIT = int(Perm.INHERIT)

EVERY_TOPIC = ""


class Topics(SavedTable):
    def __init__(self, directory: Path, clock: Clock) -> None:
        file = JsonFile(directory / "topics.json", _decode)
        super().__init__(file)
        self._clock = clock
        self._table: dict[str, TopicConfig] = {}
        self.get: Callable[[str], TopicConfig | None] = self._table.get
        # Topics a send may go to without further questions: neither reserved nor a retry topic.
        self._plain: dict[str, TopicConfig] = {}
        self.plain: Callable[[str], TopicConfig | None] = self._plain.get
        self.data_version = DataVersion(timestamp=clock.now())
        self.listeners: list[Callable[[str], None]] = []  # told the name of what changed, or EVERY_TOPIC
        self.static = StaticTopics(directory)
        data = file.load()
        if data is not None:
            stored = _decode(data)
            self.data_version = stored.data_version
            for config in stored.topic_config_table.values():
                if names.may_exist(config.topic_name):
                    self._keep(config)
                else:
                    log.error(
                        "topics.json names %r, which no topic can be called: left out", config.topic_name[:64]
                    )

    def all(self) -> dict[str, TopicConfig]:
        return self._table

    def require(self, name: str) -> TopicConfig:
        config = self._table.get(name)
        if config is None:
            raise TopicNotFound(f"topic '{name}' does not exist; create it first, or send a message to it")
        return config

    def put(self, config: TopicConfig) -> None:
        known = self._table.get(config.topic_name)
        if known == config:
            return
        if not names.may_exist(config.topic_name):
            raise InvalidParameter(f"no topic can be called {config.topic_name[:64]!r}")
        self._store(config)
        self.changed(config.topic_name, partial(self._put_back, config.topic_name, known))

    def _store(self, config: TopicConfig) -> None:
        known = self._table.get(config.topic_name)
        self._keep(config)
        log.info(
            "%s topic=%s read=%d write=%d perm=%d",
            "changed" if known else "created",
            config.topic_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
        )
        self._tell(config.topic_name)

    def _put_back(self, name: str, known: TopicConfig | None) -> None:
        if known is None:
            self._drop(name)
        else:
            self._keep(known)
        log.warning("taken back topic=%s: it could not be saved", name)
        self._tell(name)

    def delete(self, name: str) -> None:
        if name in self._table:
            self._drop(name)
            self.static.delete(name)
            log.info("deleted topic=%s", name)
            self._tell(name)
            self.changed(name)

    def all_changed(self) -> None:
        """The broker's own permission, which goes before theirs, is another now."""
        self._tell(EVERY_TOPIC)

    def ensure(self, name: str, queues: int = 1, perm: int = READ_WRITE) -> TopicConfig:
        """The topic, created with that many queues when it is not there."""
        config = self._table.get(name)
        if config is None:
            config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
            self._store(config)
            self.changed(name)
        return config

    def create_for_send(self, name: str, default_topic: str, queues: int, by: str) -> TopicConfig:
        """Create an unknown topic for its first message, after the model of the default topic."""
        if name.startswith(names.RETRY_PREFIX):
            return self.ensure(name)
        model = self._table.get(default_topic)
        if model is None or not model.perm & INHERIT:
            raise TopicNotFound(
                f"topic '{name}' does not exist and '{default_topic}' does not allow to create it; create it first"
            )
        count = min(queues, model.write_queue_nums)
        if count <= 0:
            raise InvalidParameter(f"topic '{name}' asked for with {queues} queues")
        log.info("creating topic=%s queues=%d by=%s", name, count, by)
        return self.ensure(name, count, model.perm & ~INHERIT)

    def text(self) -> bytes:
        """What topics.json holds."""
        return msgspec.json.format(
            msgspec.json.encode({"dataVersion": self.data_version, "topicConfigTable": self._table}), indent=1
        )

    def _keep(self, config: TopicConfig) -> None:
        name = config.topic_name
        self._table[name] = config
        if _is_plain(name):
            self._plain[name] = config

    def _drop(self, name: str) -> None:
        self._table.pop(name, None)
        self._plain.pop(name, None)

    def _tell(self, name: str) -> None:
        self.data_version = self.data_version.next(self._clock.now())
        for listener in self.listeners:
            listener(name)


def _is_plain(name: str) -> bool:
    if names.is_retry(name) or name.endswith(names.REPLY_SUFFIX) or len(name) > names.MAX_TOPIC:
        return False
    return names.may_send(name) and names.may_deliver(name)


def _decode(data: bytes) -> TopicConfigs:
    return decode(data, TopicConfigs)
