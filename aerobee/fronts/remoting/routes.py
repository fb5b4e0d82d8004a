# SPDX-License-Identifier: Apache-2.0
"""The whole surface of the broker's remoting port: each request by its header, which has the code, and its adapter."""

from __future__ import annotations

from aerobee.fronts.remoting import (
    access,
    admin,
    bulk,
    clients,
    consume,
    lone_broker,
    offsets,
    plain_acl,
    pop,
    produce,
    transactions,
)
from aerobee.net.routes import route, table
from aerobee.protocol.headers import accounts as ha
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers import transaction as hx

ROUTES = table(
    # messages come
    route(hp.SendMessage, produce.send_v1),
    route(hp.SendMessageV2, produce.send_v2),
    route(hp.SendBatch, produce.send_batch),
    route(hp.SendBack, produce.send_message_back),
    # messages go: pull
    route(hr.PullMessage, consume.pull_message),
    route(hr.LitePullMessage, consume.pull_message),
    # Aerobee's own: readers in bulk
    route(hr.ReadUnits, bulk.read_units),
    route(hr.ReadLog, bulk.read_log),
    route(hr.ReadHeads, bulk.read_heads),
    # offsets
    route(ho.QueryConsumerOffset, offsets.query),
    route(ho.UpdateConsumerOffset, offsets.update),
    route(ho.GetMaxOffset, offsets.max_offset),
    route(ho.GetMinOffset, offsets.min_offset),
    route(ho.SearchOffset, offsets.search),
    route(ho.EarliestStoreTime, offsets.earliest),
    route(ho.ResetOffset, offsets.reset),
    route(ho.AllConsumerOffsets, offsets.all_offsets),
    # clients about themselves
    route(hr.SendHeartbeat, clients.heartbeat),
    route(hr.Unregister, clients.unregister),
    route(hr.ConsumerList, clients.consumer_list),
    route(hr.CheckClientConfig, clients.check_client),
    route(hr.LockQueues, clients.lock),
    route(hr.UnlockQueues, clients.unlock),
    # messages go: pop, and the broker balances
    route(hr.PopMessage, pop.pop_message),
    route(hr.AckMessage, pop.ack_message),
    route(hr.BatchAckMessage, pop.batch_ack_message),
    route(hr.ChangeInvisible, pop.change_invisible_time),
    route(hr.PeekMessage, pop.peek_message),
    route(hr.Notification, pop.notification),
    route(hr.PollingInfo, pop.polling_count),
    route(hr.QueryAssignment, pop.assignment),
    route(hr.SetRequestMode, pop.request_mode),
    route(hr.GetRequestModes, pop.request_modes),
    route(hg.GroupFigures, pop.figures),
    route(hg.FindMessage, pop.message_state),
    # what a send began is finished
    route(hx.EndTransaction, transactions.end),
    route(hx.ResumeCheck, transactions.resume),
    route(hp.SendReply, transactions.reply_v1),
    route(hp.SendReplyV2, transactions.reply_v2),
    route(hp.RecallMessage, transactions.take_back),
    # operators and their tools
    route(ht.CreateTopic, admin.put_topic),
    route(ht.CreateTopicList, admin.put_topics),
    route(ht.CreateStaticTopic, admin.put_static_topic),
    route(ht.DeleteTopic, admin.delete_topic),
    route(ht.GetTopicConfig, admin.topic_config),
    route(ht.AllTopicConfigs, admin.all_topics),
    route(ht.TopicStatsQuery, admin.topic_stats),
    route(ht.TopicGroups, admin.groups_of_topic),
    route(ht.BrokerSystemTopics, admin.system_topics),
    route(hg.CreateGroup, admin.put_group),
    route(hg.CreateGroupList, admin.put_groups),
    route(hg.AllGroupConfigs, admin.all_groups),
    route(hg.GetGroupConfig, admin.group_config),
    route(hg.DeleteGroup, admin.delete_group),
    route(hg.ForbidGroup, admin.forbid),
    route(hg.ConsumerConnections, admin.consumer_connection),
    route(hg.ProducerConnections, admin.producer_connection),
    route(hg.AllProducers, admin.all_producers),
    route(hg.GroupTopics, admin.topics_of_group),
    route(hg.GroupSubscription, admin.subscription),
    route(hg.ConsumeStatsQuery, admin.consume_stats),
    route(hc.BrokerConsumeStats, admin.broker_consume_stats),
    route(ho.ConsumeTimeSpanQuery, admin.time_spans),
    route(ho.CorrectionOffset, admin.correction),
    route(ho.CloneGroupOffset, admin.clone_offsets),
    route(ho.AllDelayOffsets, admin.delay_offsets),
    route(hc.TimerMetrics, admin.timer_counts),
    route(ho.ViewMessage, admin.view_message),
    route(ho.QueryMessage, admin.query_message),
    route(ho.QueryConsumeQueue, admin.query_queue),
    route(hg.RunningInfo, admin.running_info),
    route(hr.ConsumeDirectly, admin.consume_directly),
    route(ho.ConsumerStatus, admin.consumer_status),
    route(hc.BrokerRuntime, admin.runtime_info),
    route(hc.GetBrokerConfig, admin.get_settings),
    route(hc.UpdateBrokerConfig, admin.change_settings),
    route(hc.BrokerStats, admin.stats),
    route(hc.HaStatus, admin.high_availability),
    route(hc.CleanExpiredQueues, admin.clean_up),
    route(hc.CleanUnusedTopics, admin.clean_up),
    route(hc.DeleteExpiredLog, admin.clean_up),
    # who may do what
    route(ha.CreateUser, access.create_user),
    route(ha.UpdateUser, access.update_user),
    route(ha.DeleteUser, access.delete_user),
    route(ha.GetUser, access.get_user),
    route(ha.ListUsers, access.list_users),
    route(ha.CreateAcl, access.put_acl),
    route(ha.UpdateAcl, access.put_acl),
    route(ha.DeleteAcl, access.delete_acl),
    route(ha.GetAcl, access.get_acl),
    route(ha.ListAcls, access.list_acls),
    route(ha.ReadAudit, access.read_audit),  # Aerobee's own
    route(ha.UpdateAclConfig, plain_acl.put_account),
    route(ha.DeleteAclConfig, plain_acl.delete_account),
    route(ha.GetAclVersion, plain_acl.versions),
    route(ha.UpdateWhiteAddresses, plain_acl.replace_white_addresses),
    route(ha.GetAclConfig, plain_acl.config),
    # what a lone broker has no part for
    route(hc.ExportPopRecords, lone_broker.export_pop_records),
    route(hc.ResetMasterFlushOffset, lone_broker.reset_master_flush_offset),
    route(hc.EpochCache, lone_broker.epochs),
    route(hc.ExportSettings, lone_broker.export_settings_as_json),
)
