# SPDX-License-Identifier: Apache-2.0
"""Aerobee: RocketMQ's messaging in Python. Names load when they are first used, so `import aerobee` is light."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.client.admin import Admin as Admin
    from aerobee.client.consume.handler import ConsumeResult as ConsumeResult
    from aerobee.client.consume.handler import Outcome as Outcome
    from aerobee.client.consume.pull_consumer import PullConsumer as PullConsumer
    from aerobee.client.consume.push_consumer import PushConsumer as PushConsumer
    from aerobee.client.consume.simple_consumer import SimpleConsumer as SimpleConsumer
    from aerobee.client.consume.subscriptions import Sql as Sql
    from aerobee.client.message import Message as Message
    from aerobee.client.message import MessageQueue as MessageQueue
    from aerobee.client.message import ReceivedMessage as ReceivedMessage
    from aerobee.client.message import SendResult as SendResult
    from aerobee.client.message import SendStatus as SendStatus
    from aerobee.client.options import Options as Options
    from aerobee.client.options import ProducerOptions as ProducerOptions
    from aerobee.client.options import PullOptions as PullOptions
    from aerobee.client.options import PushOptions as PushOptions
    from aerobee.client.options import SessionOptions as SessionOptions
    from aerobee.client.options import SimpleOptions as SimpleOptions
    from aerobee.client.produce.producer import Producer as Producer
    from aerobee.client.produce.transaction_producer import TransactionProducer as TransactionProducer
    from aerobee.client.produce.transaction_producer import TransactionResult as TransactionResult
    from aerobee.client.produce.transaction_producer import TransactionState as TransactionState
    from aerobee.client.running import run as run
    from aerobee.clock import ManualClock as ManualClock
    from aerobee.server import Server as Server
    from aerobee.settings import BrokerConfig as BrokerConfig
    from aerobee.settings import NamesrvConfig as NamesrvConfig
    from aerobee.settings import StoreConfig as StoreConfig

__version__ = "0.1.0"  # the one place: the package takes it from here

_HOME = {
    "Admin": "aerobee.client.admin",
    "BrokerConfig": "aerobee.settings",
    "ConsumeResult": "aerobee.client.consume.handler",
    "ManualClock": "aerobee.clock",
    "Message": "aerobee.client.message",
    "MessageQueue": "aerobee.client.message",
    "NamesrvConfig": "aerobee.settings",
    "Options": "aerobee.client.options",
    "Outcome": "aerobee.client.consume.handler",
    "Producer": "aerobee.client.produce.producer",
    "ProducerOptions": "aerobee.client.options",
    "PullConsumer": "aerobee.client.consume.pull_consumer",
    "PullOptions": "aerobee.client.options",
    "PushConsumer": "aerobee.client.consume.push_consumer",
    "PushOptions": "aerobee.client.options",
    "ReceivedMessage": "aerobee.client.message",
    "SendResult": "aerobee.client.message",
    "SendStatus": "aerobee.client.message",
    "Server": "aerobee.server",
    "SessionOptions": "aerobee.client.options",
    "SimpleConsumer": "aerobee.client.consume.simple_consumer",
    "SimpleOptions": "aerobee.client.options",
    "Sql": "aerobee.client.consume.subscriptions",
    "StoreConfig": "aerobee.settings",
    "TransactionProducer": "aerobee.client.produce.transaction_producer",
    "TransactionResult": "aerobee.client.produce.transaction_producer",
    "TransactionState": "aerobee.client.produce.transaction_producer",
    "run": "aerobee.client.running",
}


__all__ = [
    *_HOME,
    "__version__",
]


if not TYPE_CHECKING:  # a checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'aerobee' has no attribute {name!r}")
        # Kept: `aerobee.Message` is asked for with every send.
        found = globals()[name] = getattr(import_module(home), name)
        return found


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | _HOME.keys())
