# SPDX-License-Identifier: Apache-2.0
"""The broker's settings, seen and changed while it runs, under RocketMQ's names for them.

A setting may change at run time when every use reads it from the settings struct; `CHANGEABLE` lists those.
Others are refused by name. Names that RocketMQ has and Aerobee has no use for (sizes of thread pools and the
like) are taken without effect, because scripts written for RocketMQ set them. Changes last until the next
start: the settings file is the operator's own.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from aerobee.config import BrokerConfig, StoreConfig
from aerobee.errors import InvalidParameter, NoPermission
from aerobee.protocol import names
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.settings")

_CHANGEABLE = (
    "perm region auto_create_topics property_filter short_polling_ms max_pull_messages max_pull_bytes pull_bytes"
    " transaction_timeout_ms transaction_check_max transaction_check_ms pop_retry_percent server_side_reset recall"
    " flush flush_interval_ms retention_hours retention_bytes disk_clean_ratio disk_full_ratio min_free_bytes"
    " timer_max_delay_ms"
)
CHANGEABLE = frozenset(_CHANGEABLE.split())
BLACKLIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
# RocketMQ's, without a counterpart here.
_WITHOUT_EFFECT = (
    "waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue"
    " waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue sendMessageThreadPoolNums pullMessageThreadPoolNums"
    " queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums"
    " heartbeatThreadPoolNums endTransactionThreadPoolNums sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity"
    " osPageCacheBusyTimeOutMills brokerFastFailureEnable useReentrantLockWhenPutMessage transferMsgByHeap"
    " warmMapedFileEnable transientStorePoolEnable slaveReadEnable deleteWhen destroyMapedFileIntervalForcibly"
    " redeleteHangedFileInterval cleanFileForciblyEnable diskMaxUsedSpaceRatio commercialEnable traceOn"
    " traceTopicEnable aclEnable enableCalcFilterBitMap filterSupportRetry compressedRegister"
)
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT.split())
_FLUSH = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}


def _wire_names(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> RocketMQ's name for it."""
    found = {}
    for field, hint in get_type_hints(kind, include_extras=True).items():
        extra = next((m.extra_json_schema for m in hint.__metadata__ if isinstance(m, msgspec.Meta)), None)
        words = field.split("_")
        found[field] = (extra or {}).get("alias") or words[0] + "".join(word.title() for word in words[1:])
    return found


BROKER_NAMES = _wire_names(BrokerConfig)
STORE_NAMES = _wire_names(StoreConfig)


def settings(broker: Broker) -> str:
    """All settings as `key=value` lines."""
    lines = [f"{wire}={_text(getattr(broker.config, field))}" for field, wire in BROKER_NAMES.items()]
    lines += [f"{wire}={_text(getattr(broker.store.config, field))}" for field, wire in STORE_NAMES.items()]
    lines.append(f"storePathRootDir={broker.store.root}")
    return "".join(f"{line}\n" for line in sorted(lines))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return next((wire for wire, own in _FLUSH.items() if own == value), str(value))


def change_settings(text: str, broker: Broker) -> None:
    """Change what the `key=value` lines say: all of it, or, when any line is refused, nothing."""
    changes: list[tuple[msgspec.Struct, str, Any]] = []
    for line in text.splitlines():
        key, equals, value = (part.strip() for part in line.partition("="))
        if not key or key.startswith("#"):
            continue
        if not equals:
            raise InvalidParameter(f"{line!r}: write key=value")
        if key in WITHOUT_EFFECT:
            log.info("setting %s=%s is RocketMQ's; it has no effect here", key, value)
        else:
            changes.append(_change(key, value, broker))
    for struct, field, value in changes:
        if value == getattr(struct, field):
            continue
        log.info(
            "setting %s changed from=%s to=%s, until the next start", field, getattr(struct, field), value
        )
        msgspec.structs.force_setattr(struct, field, value)
        if field == "auto_create_topics":
            _let_create(broker)


def _change(key: str, text: str, broker: Broker) -> tuple[msgspec.Struct, str, Any]:
    if key in BLACKLIST:
        raise NoPermission(f"setting '{key}' may not be changed remotely")
    for struct, table in ((broker.config, BROKER_NAMES), (broker.store.config, STORE_NAMES)):
        for field, wire in table.items():
            if key in (field, wire):
                value = _convert(type(struct), field, key, text)
                if field not in CHANGEABLE and value != getattr(struct, field):
                    raise InvalidParameter(
                        f"setting '{key}' takes effect at the start only: change the settings file"
                    )
                return struct, field, value
    known = [*BROKER_NAMES.values(), *STORE_NAMES.values()]
    near = difflib.get_close_matches(key, known, 1)
    raise InvalidParameter(f"there is no setting '{key}'" + (f"; do you mean '{near[0]}'?" if near else ""))


def _convert(kind: type[msgspec.Struct], field: str, key: str, text: str) -> Any:
    hint = get_type_hints(kind)[field]
    text = _FLUSH.get(text, text)
    if field == "flush" and text not in _FLUSH.values():
        raise InvalidParameter(f"setting '{key}': {text!r} is neither ASYNC_FLUSH nor SYNC_FLUSH")
    try:
        return msgspec.convert(text.lower() if hint is bool else text, hint, strict=False)
    except msgspec.ValidationError:
        raise InvalidParameter(f"setting '{key}': {text!r} is not of type {hint.__name__}") from None


def _let_create(broker: Broker) -> None:
    """Topics are created on send as long as the template topic may be inherited from."""
    perm = Perm.READ | Perm.WRITE | (Perm.INHERIT if broker.config.auto_create_topics else 0)
    template = broker.topics.ensure(names.DEFAULT_TOPIC, broker.config.default_queues)
    broker.topics.put(msgspec.structs.replace(template, perm=int(perm)))
