# SPDX-License-Identifier: Apache-2.0
"""One broker as a whole: its settings, its figures, its housekeeping."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header


class UpdateBrokerConfig(Header):
    """No fields; the body is `key=value` lines."""

    code = RequestCode.UPDATE_BROKER_CONFIG


class GetBrokerConfig(Header):
    code = RequestCode.GET_BROKER_CONFIG


class BrokerConfigResult(Header):
    version: str | None = None  # DataVersion as JSON text
    changed: str | None = (
        None  # ours: names of settings changed since the start, ',' between them; none, no field
    )


class BrokerRuntime(Header):
    code = RequestCode.GET_BROKER_RUNTIME_INFO


class BrokerStats(Header):
    code = RequestCode.VIEW_BROKER_STATS_DATA
    stats_name: str
    stats_key: str


class BrokerConsumeStats(Header):
    code = RequestCode.GET_BROKER_CONSUME_STATS
    is_order: bool = False


class TimerCheckPoint(Header):
    code = RequestCode.GET_TIMER_CHECK_POINT


class TimerMetrics(Header):
    code = RequestCode.GET_TIMER_METRICS


class HaStatus(Header):
    code = RequestCode.GET_BROKER_HA_STATUS


class CleanExpiredQueues(Header):
    code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanUnusedTopics(Header):
    code = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpiredLog(Header):
    code = RequestCode.DELETE_EXPIRED_COMMITLOG


class ResetMasterFlushOffset(Header):
    code = RequestCode.RESET_MASTER_FLUSH_OFFSET
    master_flush_offset: int | None = None


class EpochCache(Header):
    code = RequestCode.GET_BROKER_EPOCH_CACHE


class ExportSettings(Header):
    code = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON
    config_type: str | None = None


class ExportPopRecords(Header):
    code = RequestCode.POP_ROLLBACK
