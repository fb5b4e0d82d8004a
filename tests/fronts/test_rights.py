# SPDX-License-Identifier: Apache-2.0
"""What each request needs: by an account that has exactly the right, and by one that has all but that.

The rows are written down here once more, from RocketMQ's own annotations and what it leaves open; a request that has no
row, or no entry in the table of rights, fails.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.access.access import Access, Rules
from aerobee.broker.access.users import User
from aerobee.clock import ManualClock
from aerobee.errors import AccessDenied
from aerobee.fronts.gates import permissions, rights
from aerobee.fronts.gates.call import Place, Port
from aerobee.fronts.gates.remoting import RemotingCall
from aerobee.fronts.grpc.call import GrpcCall
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import ROUTES as GRPC_ROUTES
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.namesrv.handlers import ROUTES as NAMESRV_ROUTES
from aerobee.net.routes import Request
from aerobee.protocol import bodies, message
from aerobee.protocol.access import Action, Decision, PolicyType, Resource
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers import accounts as ha
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import consume as hr
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import produce as hp
from aerobee.protocol.headers import route as hn
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers import transaction as hx
from aerobee.protocol.policies import Entry, Policy

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Call
    from aerobee.protocol.command import Header

HERE = ("10.1.2.3", 5000)
AT = 4242  # in the log: a message of topic `there`
AT_HALF = 4343  # and a half message of topic `half`
AT_RETRY = 4444  # and one that POP redelivered to group g
OFFSET_ID = message.offset_message_id(b"\x7f\x00\x00\x01\x00\x00\x2a\x9f", AT)
GONE_ID = message.offset_message_id(b"\x7f\x00\x00\x01\x00\x00\x2a\x9f", AT + 1)
T_AND_G: dict[str, Any] = {"topic": "t", "consumer_group": "g"}
T_AND_GROUP: dict[str, Any] = {"topic": "t", "group": "g"}


class Log:
    def topic_at(self, physical_offset: int) -> str | None:
        return {AT: "there", AT_HALF: "half", AT_RETRY: "%RETRY%g_t"}.get(physical_offset)

    def is_group(self, name: str) -> bool:
        return name in ("g", "g_h")

    def is_topic(self, name: str) -> bool:
        return name == "rmq_sys_TRACE_DATA_here"


def consumer(group: str, *topics: str) -> bodies.ConsumerData:
    subscribed = [bodies.SubscriptionData(topic=topic) for topic in topics]
    return bodies.ConsumerData(group_name=group, subscription_data_set=subscribed)


def beat(*consumers: bodies.ConsumerData) -> bytes:
    producers = [bodies.ProducerData(group_name="p")]
    return bodies.encode(
        bodies.Heartbeat(client_id="c", consumer_data_set=list(consumers), producer_data_set=producers)
    )


LOCK = bodies.encode(
    bodies.LockBatch(
        consumer_group="g", mq_set=[bodies.MessageQueue("b", 0, "t"), bodies.MessageQueue("b", 0, "%RETRY%g")]
    )
)
LOCK_TWO = bodies.encode(
    bodies.LockBatch(
        consumer_group="g", mq_set=[bodies.MessageQueue("b", 0, "u"), bodies.MessageQueue("b", 0, "t")]
    )
)
ACKS = bodies.encode(
    bodies.BatchAck(
        acks=[
            bodies.BatchAckEntry(consumer_group="g", topic="t"),
            bodies.BatchAckEntry(consumer_group="h", topic="u"),
        ]
    )
)
SEND: dict[str, Any] = {"topic": "t"}
PULL: dict[str, Any] = {**T_AND_G, "queue_id": 0, "queue_offset": 0}
ACK: dict[str, Any] = {**T_AND_G, "queue_id": 0, "extra_info": "x", "offset": 0}
QUEUE: dict[str, Any] = {"topic": "t", "queue_id": 0}
C = "Cluster:c"

# (header, body, needs): `A|B` is one of the two, `+` is all of them, in order.
BROKER: list[tuple[Header, bytes, str]] = [
    (hp.SendMessage(**SEND), b"", "Topic:t Pub"),
    (hp.SendMessageV2(**SEND), b"", "Topic:t Pub"),
    (hp.SendBatch(**SEND), b"", "Topic:t Pub"),
    (hp.SendReply(topic="c_REPLY_TOPIC"), b"", "Topic:c_REPLY_TOPIC Pub"),
    (hp.SendReplyV2(topic="c_REPLY_TOPIC"), b"", "Topic:c_REPLY_TOPIC Pub"),
    (hp.SendReplyV2(**SEND), b"", "Topic:t Pub + Topic:c_REPLY_TOPIC Pub"),
    (hp.SendMessageV2(topic="%RETRY%h", producer_group="g"), b"", "Group:h Sub"),
    (hp.SendMessageV2(topic="RMQ_SYS_TRACE_TOPIC"), b"", ""),
    (hp.SendMessageV2(topic="rmq_sys_TRACE_DATA_here"), b"", ""),
    (hp.SendMessageV2(topic="rmq_sys_TRACE_DATA_new"), b"", "Topic:rmq_sys_TRACE_DATA_new Pub"),
    (hp.SendMessageV2(topic="t", properties="TIMER_DEL_UNIQKEY\x01u+K1\x02"), b"", "Topic:t Pub + Topic:u Pub"),
    (hp.SendBack(offset=1, group="g"), b"", "Group:g Sub"),
    (hp.SendBack(offset=AT, group="g", origin_topic="t"), b"", "Group:g Sub + Topic:there Sub"),
    (hp.SendBack(offset=AT_RETRY, group="g"), b"", "Group:g Sub + Topic:t Sub"),
    (hp.RecallMessage(topic="t", recall_handle="x"), b"", "Topic:t Pub"),
    (hr.PullMessage(**PULL), b"", "Topic:t Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%g"}), b"", "Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%h"}), b"", "Group:h Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%g_t"}), b"", "Topic:t Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%g+t"}), b"", "Topic:t Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%h+t"}), b"", "Group:h Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%RETRY%g_h"}), b"", "Group:g_h Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "topic": "%DLQ%g"}), b"", "Topic:%DLQ%g Sub + Group:g Sub"),
    (hr.LitePullMessage(**PULL), b"", "Topic:t Sub + Group:g Sub"),
    (hr.PullMessage(**{**PULL, "consumer_group": "TOOLS_CONSUMER"}), b"", "Topic:t Sub"),
    (hr.PullMessage(**{**PULL, "consumer_group": "CID_RMQ_SYS_x"}), b"", "Topic:t Sub + Group:CID_RMQ_SYS_x Sub"),
    (hr.PullMessage(**{**PULL, "consumer_group": "TOOLS_CONSUMER", "topic": "%RETRY%g"}), b"", "Group:g Sub"),
    (hr.ReadUnits(**QUEUE, offset=0, count=1), b"", "Topic:t Sub"),
    (hr.ReadLog(position=0, size=1), b"", "Topic:* Sub"),
    (hr.ReadHeads(), b'["t","u"]', "Topic:t Get|Sub + Topic:u Get|Sub"),
    (hr.ReadHeads(since="x"), b"", "Topic:* Get|Sub"),
    (hr.ReadHeads(since="x"), b"[]", "Topic:* Get|Sub"),
    (hr.ReadHeads(), b'["t","%RETRY%g"]', "Topic:t Get|Sub + Group:g Get|Sub"),
    (hr.ReadHeads(since="s"), b"", "Topic:* Get|Sub"),
    (ho.QueryConsumerOffset(**T_AND_G, queue_id=0), b"", "Topic:t Sub|Get + Group:g Sub|Get"),
    (
        ho.UpdateConsumerOffset(**T_AND_G, queue_id=0, commit_offset=1), b"",
        "Topic:t Sub|Update + Group:g Sub|Update",
    ),
    (ho.GetMaxOffset(**QUEUE), b"", "Topic:t Get|Sub"),
    (ho.GetMinOffset(**QUEUE), b"", "Topic:t Get|Sub"),
    (ho.SearchOffset(**QUEUE, timestamp=0), b"", "Topic:t Get|Sub"),
    (ho.EarliestStoreTime(**QUEUE), b"", "Topic:t Get|Sub"),
    (ho.ResetOffset(**T_AND_GROUP), b"", "Group:g Update + Topic:t Update"),
    (ho.AllConsumerOffsets(), b"", f"{C} Get"),
    (hr.SendHeartbeat(), beat(), ""),
    (
        hr.SendHeartbeat(), beat(consumer("g", "t", "%RETRY%g"), consumer("h", "u")),
        "Group:g Sub + Topic:t Sub + Group:h Sub + Topic:u Sub",
    ),
    (hr.SendHeartbeat(), beat(consumer("g", "%RETRY%h")), "Group:g Sub + Group:h Sub"),
    (hr.SendHeartbeat(), beat(consumer("g", "t", "u")), "Group:g Sub + Topic:t Sub + Topic:u Sub"),
    (hr.Unregister(client_id="c", consumer_group="g"), b"", "Group:g Sub"),
    (hr.Unregister(client_id="c", producer_group="p"), b"", ""),
    (hr.ConsumerList(consumer_group="g"), b"", "Group:g Sub|Get"),
    (
        hr.CheckClientConfig(),
        bodies.encode(bodies.CheckClient(group="g", subscription_data=bodies.SubscriptionData(topic="t"))),
        "Topic:t Sub + Group:g Sub",
    ),
    (hr.LockQueues(), LOCK, "Group:g Sub + Topic:t Sub"),
    (hr.UnlockQueues(), LOCK, "Group:g Sub + Topic:t Sub"),
    (hr.LockQueues(), LOCK_TWO, "Group:g Sub + Topic:t Sub + Topic:u Sub"),
    (hr.PopMessage(**T_AND_G), b"", "Group:g Sub + Topic:t Sub"),
    (hr.AckMessage(**ACK), b"", "Group:g Sub + Topic:t Sub"),
    (hr.AckMessage(**{**ACK, "topic": "%RETRY%g_t"}), b"", "Group:g Sub + Topic:t Sub"),
    (hr.BatchAckMessage(), ACKS, "Topic:t Sub + Group:g Sub + Topic:u Sub + Group:h Sub"),
    (hr.ChangeInvisible(**ACK, invisible_time=1), b"", "Group:g Sub + Topic:t Sub"),
    (hr.PeekMessage(**T_AND_G), b"", "Topic:t Sub + Group:g Sub"),
    (hr.Notification(**T_AND_G), b"", "Group:g Sub + Topic:t Sub"),
    (hr.PollingInfo(**T_AND_G), b"", "Group:g Get + Topic:t Get"),
    (
        hr.QueryAssignment(), bodies.encode(bodies.AssignmentQuery(topic="t", consumer_group="g")),
        "Topic:t Sub + Group:g Sub",
    ),
    (
        hr.SetRequestMode(), bodies.encode(bodies.RequestMode(topic="t", consumer_group="g")),
        "Topic:t Sub + Group:g Update",
    ),
    (hr.GetRequestModes(), b"", "Topic:* List + Group:* List"),
    (hg.GroupFigures(group="g"), b"", "Group:g Get"),
    (hg.GroupFigures(consumer_group="g", topic="t"), b"", "Group:g Get + Topic:t Get"),
    (hg.FindMessage(consumer_group="g", topic="t", queue_id=0, offset=7), b"", "Group:g Get + Topic:t Get"),
    (
        hx.EndTransaction(
            producer_group="p", tran_state_table_offset=0, commit_log_offset=AT_HALF, commit_or_rollback=8
        ),
        b"", "Topic:half Pub",
    ),
    (
        hx.EndTransaction(
            topic="t", producer_group="p", tran_state_table_offset=0, commit_log_offset=AT_HALF, commit_or_rollback=8
        ),
        b"", "Topic:t Pub + Topic:half Pub",
    ),
    (hx.ResumeCheck(topic="t", msg_id=OFFSET_ID), b"", "Topic:there Update"),
    (hx.ResumeCheck(topic="t", msg_id=GONE_ID), b"", "Topic:t Update"),
    (hx.ResumeCheck(msg_id=GONE_ID), b"", f"{C} Update"),
    (ht.CreateTopic(topic="t"), b"", "Topic:t Create"),
    (ht.CreateTopic(topic="%RETRY%g"), b"", "Group:g Create"),
    (
        ht.CreateTopicList(),
        bodies.encode(
            bodies.TopicConfigList(
                topic_config_list=[bodies.TopicConfig(topic_name="t"), bodies.TopicConfig(topic_name="%RETRY%g")]
            )
        ),
        "Topic:t Create + Group:g Create",
    ),
    (ht.CreateStaticTopic(topic="t"), b"", "Topic:t Create"),
    (ht.DeleteTopic(topic="t"), b"", "Topic:t Delete"),
    (ht.GetTopicConfig(topic="t"), b"", "Topic:t Get"),
    (ht.AllTopicConfigs(), b"", "Topic:* List"),
    (ht.TopicStatsQuery(topic="t"), b"", "Topic:t Get"),
    (ht.TopicGroups(topic="t"), b"", "Topic:t Get"),
    (ht.BrokerSystemTopics(), b"", "Topic:* List"),
    (hg.CreateGroup(), bodies.encode(bodies.GroupConfig(group_name="g")), "Group:g Create"),
    (
        hg.CreateGroupList(),
        bodies.encode(
            bodies.GroupConfigList(
                group_config_list=[bodies.GroupConfig(group_name="g"), bodies.GroupConfig(group_name="h")]
            )
        ),
        "Group:g Create + Group:h Create",
    ),
    (hg.AllGroupConfigs(), b"", "Group:* List"),
    (hg.GetGroupConfig(group="g"), b"", "Group:g Get"),
    (hg.DeleteGroup(group_name="g"), b"", "Group:g Delete"),
    (hg.ForbidGroup(**T_AND_GROUP), b"", "Group:g Update + Topic:t Update"),
    (hg.ConsumerConnections(consumer_group="g"), b"", "Group:g Get"),
    (hg.ProducerConnections(producer_group="p"), b"", f"{C} Get"),
    (hg.AllProducers(), b"", f"{C} Get"),
    (hg.GroupTopics(group="g"), b"", "Group:g Get"),
    (hg.GroupSubscription(**T_AND_GROUP), b"", "Group:g Get + Topic:t Get"),
    (hg.ConsumeStatsQuery(consumer_group="g"), b"", "Group:g Get"),
    (
        hg.ConsumeStatsQuery(consumer_group="g", topic="t", topic_list="u;v"), b"",
        "Group:g Get + Topic:t Get + Topic:u Get + Topic:v Get",
    ),
    (hc.BrokerConsumeStats(), b"", f"{C} Get"),
    (ho.ConsumeTimeSpanQuery(**T_AND_GROUP), b"", "Topic:t Get + Group:g Get"),
    (
        ho.CorrectionOffset(filter_groups="h,i", compare_group="g", topic="t"), b"",
        "Group:h Get + Group:i Get + Group:g Get + Topic:t Get",
    ),
    (ho.CloneGroupOffset(src_group="h", dest_group="g", topic="t"), b"", "Group:g Update + Topic:t Update"),
    (ho.CloneGroupOffset(src_group="h", dest_group="g"), b"", "Group:g Update + Topic:* Update"),
    (ho.AllDelayOffsets(), b"", f"{C} Get"),
    (ho.ViewMessage(offset=AT, topic="t"), b"", "Topic:there Get|Sub"),
    (ho.QueryMessage(topic="t", key="k"), b"", "Topic:t Sub|Get"),
    (ho.QueryConsumeQueue(topic="t"), b"", "Topic:t Get"),
    (ho.QueryConsumeQueue(topic="t", consumer_group="g"), b"", "Topic:t Get + Group:g Get"),
    (hg.RunningInfo(consumer_group="g", client_id="c"), b"", "Group:g Get"),
    (
        hr.ConsumeDirectly(consumer_group="g", msg_id=OFFSET_ID, topic="t"), b"",
        "Group:g Sub + Topic:there Sub + Topic:t Sub",
    ),
    (ho.ConsumerStatus(**T_AND_GROUP), b"", "Topic:t Get + Group:g Get"),
    (hc.BrokerRuntime(), b"", f"{C} Get"),
    (hc.GetBrokerConfig(), b"", f"{C} Get"),
    (hc.UpdateBrokerConfig(), b"", f"{C} Update"),
    (hc.BrokerStats(stats_name="n", stats_key="k"), b"", f"{C} Get"),
    (hc.HaStatus(), b"", f"{C} Get"),
    (hc.CleanExpiredQueues(), b"", f"{C} Update"),
    (hc.CleanUnusedTopics(), b"", f"{C} Update"),
    (hc.DeleteExpiredLog(), b"", f"{C} Update"),
    (ha.CreateUser(username="u"), b"", f"{C} Update"),
    (ha.UpdateUser(username="u"), b"", f"{C} Update"),
    (ha.DeleteUser(username="u"), b"", f"{C} Update"),
    (ha.GetUser(username="u"), b"", f"{C} Get"),
    (ha.ListUsers(), b"", f"{C} Get"),
    (ha.CreateAcl(subject="User:u"), b"", f"{C} Update"),
    (ha.UpdateAcl(subject="User:u"), b"", f"{C} Update"),
    (ha.DeleteAcl(subject="User:u"), b"", f"{C} Update"),
    (ha.GetAcl(subject="User:u"), b"", f"{C} Get"),
    (ha.ListAcls(), b"", f"{C} Get"),
    (ha.ReadAudit(), b"", f"{C} Update"),
    (ha.UpdateAclConfig(access_key="a"), b"", f"{C} Update"),
    (ha.DeleteAclConfig(access_key="a"), b"", f"{C} Update"),
    (ha.GetAclVersion(), b"", f"{C} Update"),
    (ha.UpdateWhiteAddresses(global_white_addrs="*"), b"", f"{C} Update"),
    (ha.GetAclConfig(), b"", f"{C} Update"),
    (hc.ExportPopRecords(), b"", f"{C} Update"),
    (hc.ResetMasterFlushOffset(), b"", f"{C} Update"),
    (hc.TimerMetrics(), b"", f"{C} Get"),
    (hc.EpochCache(), b"", f"{C} Get"),
    (hc.ExportSettings(), b"", f"{C} Get"),
]  # fmt: skip
OTHER: dict[str, Any] = {"cluster_name": "d", "broker_name": "b", "broker_addr": "1.2.3.4:5"}
NAMESRV: list[tuple[Header, bytes, str]] = [
    (hn.PutKV(namespace="n", key="k", value="v"), b"", f"{C} Update"),
    (hn.GetKV(namespace="n", key="k"), b"", f"{C} Get"),
    (hn.DeleteKV(namespace="n", key="k"), b"", f"{C} Update"),
    (hn.GetKVList(namespace="n"), b"", f"{C} Get"),
    (hn.RegisterBroker(**OTHER), b"", "Cluster:d Update"),
    (hn.UnregisterBroker(**OTHER), b"", "Cluster:d Update"),
    (hn.QueryDataVersion(**OTHER), b"", "Cluster:d Get"),
    (hn.BrokerHeartbeat(**OTHER), b"", "Cluster:d Update"),
    (hn.GetMemberGroup(cluster_name="d", broker_name="b"), b"", "Cluster:d Get"),
    (hn.GetGoneBrokers(), b"", f"{C} Get"),
    (hn.WipeWritePerm(broker_name="b"), b"", f"{C} Update"),
    (hn.AddWritePerm(broker_name="b"), b"", f"{C} Update"),
    (hn.AllTopics(), b"", "Topic:* List"),
    (hn.TopicsByCluster(cluster="d"), b"", "Topic:* List"),
    (hn.SystemTopics(), b"", "Topic:* List"),
    (hn.UnitTopics(), b"", "Topic:* List"),
    (hn.UnitSubscriptionTopics(), b"", "Topic:* List"),
    (hn.UnitSubscriptionNonUnitTopics(), b"", "Topic:* List"),
    (hn.RegisterTopicRoute(topic="t"), b"", f"{C} Update"),
    (hn.DeleteTopicRoute(topic="t", cluster_name="d"), b"", "Cluster:d Update"),
    (hn.DeleteTopicRoute(topic="t"), b"", f"{C} Update"),
    (hn.GetNamesrvConfig(), b"", f"{C} Get"),
    (hn.UpdateNamesrvConfig(), b"", f"{C} Update"),
]
OPEN_AT_NAMESRV = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
T, G = pb.Resource(name="t"), pb.Resource(name="g")
IN_SPACE = pb.Resource(resource_namespace="ns", name="t")
T_QUEUE = pb.MessageQueue(topic=T)


def settings(**which: Any) -> Any:
    return pb.TelemetryCommand(settings=pb.Settings(**which))


GRPC: list[tuple[Any, str]] = [
    (pb.QueryRouteRequest(topic=T), "Topic:t Pub|Sub"),
    (pb.QueryRouteRequest(topic=IN_SPACE), "Topic:ns%t Pub|Sub"),
    (pb.QueryAssignmentRequest(topic=T, group=G), "Group:g Sub + Topic:t Sub"),
    (pb.HeartbeatRequest(group=G, client_type=pb.PUSH_CONSUMER), "Group:g Sub"),
    (pb.HeartbeatRequest(client_type=pb.PRODUCER), ""),
    (pb.NotifyClientTerminationRequest(group=G), "Group:g Sub"),
    (pb.NotifyClientTerminationRequest(), ""),
    (pb.SendMessageRequest(messages=[pb.Message(topic=T), pb.Message(topic=IN_SPACE)]), "Topic:t Pub + Topic:ns%t Pub"),
    (pb.EndTransactionRequest(topic=T, transaction_id=f"0-{AT_HALF}-key"), "Topic:t Pub + Topic:half Pub"),
    (pb.EndTransactionRequest(topic=T, transaction_id="no id"), "Topic:t Pub"),
    (pb.RecallMessageRequest(topic=T), "Topic:t Pub"),
    (pb.ReceiveMessageRequest(group=G, message_queue=T_QUEUE), "Group:g Sub + Topic:t Sub"),
    (pb.AckMessageRequest(group=G, topic=T), "Group:g Sub + Topic:t Sub"),
    (pb.ChangeInvisibleDurationRequest(group=G, topic=T), "Group:g Sub + Topic:t Sub"),
    (pb.ForwardMessageToDeadLetterQueueRequest(group=G, topic=T), "Group:g Sub + Topic:t Sub"),
    (pb.PullMessageRequest(group=G, message_queue=T_QUEUE), "Group:g Sub + Topic:t Sub"),
    (pb.UpdateOffsetRequest(group=G, message_queue=T_QUEUE), "Group:g Sub|Update + Topic:t Sub|Update"),
    (pb.GetOffsetRequest(group=G, message_queue=T_QUEUE), "Group:g Sub|Get + Topic:t Sub|Get"),
    (pb.QueryOffsetRequest(message_queue=T_QUEUE), "Topic:t Get|Sub"),
    (pb.TelemetryCommand(), ""),
    (settings(publishing=pb.Publishing(topics=[T, IN_SPACE])), "Topic:t Pub + Topic:ns%t Pub"),
    (
        settings(subscription=pb.Subscription(
            group=G, subscriptions=[pb.SubscriptionEntry(topic=T), pb.SubscriptionEntry(topic=IN_SPACE)]
        )),
        "Group:g Sub + Topic:t Sub + Topic:ns%t Sub",
    ),
    (
        settings(subscription=pb.Subscription(group=G, subscriptions=[pb.SubscriptionEntry(topic=T)])),
        "Group:g Sub + Topic:t Sub",
    ),
]  # fmt: skip


# -- an account and a request ------------------------------------------------------------------------------------


class Parts:
    def __init__(self, access: Access) -> None:
        self.guard = access


class Account:
    """User `ann` in front of one request."""

    def __init__(self) -> None:
        self.access = Access(None, Rules(cluster="c", authentication=True, authorization=True), Log())
        self.access.put_user(User(username="ann", password="p"))

    def given(self, *entries: Entry) -> Account:
        self.access.put_policy("ann", Policy().merged(PolicyType.CUSTOM, entries))
        return self

    def ask(self, place: tuple[Port, str, int | None], call: Call) -> str:
        """Empty when let through, else why not."""
        gate = permissions.gate(Place(*place, ManualClock(), Parts(self.access)))
        assert gate is not None
        call.user = "ann"
        try:
            gate(call)
        except AccessDenied as refused:
            return refused.remark
        return ""


def remoting(port: Port, header: Header, body: bytes) -> tuple[tuple[Port, str, int], Call]:
    class Connection:
        remote = HERE

    command = Command(type(header).code, ext=header_fields(header), body=body)
    kind = type(header)
    call = RemotingCall(port, kind.__name__, Request(Connection(), command), kind)  # type: ignore[arg-type]
    return (port, kind.__name__, kind.code), call


def grpc(request: Any) -> tuple[tuple[Port, str, None], Call]:
    name = type(request).__name__.removesuffix("Request").removesuffix("Command")
    exchange: Any = SimpleNamespace(fields={}, connection=SimpleNamespace(remote=HERE))
    call = GrpcCall(name, request.SerializeToString(), exchange, type(request).FromString)
    return (Port.GRPC, name, None), call


def needs_of(text: str) -> list[tuple[Resource, tuple[Action, ...]]]:
    pairs = [part.split() for part in text.split(" + ") if part]
    return [
        (Resource.parse(name), tuple(Action(each) for each in actions.split("|"))) for name, actions in pairs
    ]


ROWS = [
    *((Port.BROKER, header, body, needs) for header, body, needs in BROKER),
    *((Port.NAMESRV, header, body, needs) for header, body, needs in NAMESRV),
    *((Port.GRPC, asked, b"", needs) for asked, needs in GRPC),
]


@pytest.mark.parametrize(
    ("port", "asked", "body", "needs"),
    ROWS,
    ids=[f"{row[0].value} {type(row[1]).__name__} {row[3]}" for row in ROWS],
)
def test_exactly_the_right_is_enough_and_all_but_that_is_not(
    port: Port, asked: Any, body: bytes, needs: str
) -> None:
    place, call = grpc(asked) if port is Port.GRPC else remoting(port, asked, body)
    wanted = needs_of(needs)
    for choice in range(max((len(actions) for _, actions in wanted), default=1)):
        exactly = [
            Entry(name, (actions[min(choice, len(actions) - 1)],), Decision.ALLOW) for name, actions in wanted
        ]
        assert Account().given(*exactly).ask(place, call) == ""
    everything = Entry(Resource.parse("*"), (Action.ALL,), Decision.ALLOW)
    for name, actions in wanted:
        all_but_that = Account().given(everything, Entry(name, actions, Decision.DENY))
        assert all_but_that.ask(place, call) == (
            f"User:ann has no permission to access {name.text} from 10.1.2.3, the decision is deny. "
            f"Needs {' or '.join(actions)} on {name.text}."
        )
    if wanted:
        first, actions = wanted[0][0].text, wanted[0][1]
        assert Account().ask(place, call) == (
            f"User:ann has no permission to access {first} from 10.1.2.3, no matched policies. "
            f"Needs {' or '.join(actions)} on {first}."
        )


def test_every_request_has_its_row_and_its_rights() -> None:
    assert rights.BROKER.keys() == ROUTES.keys() == {type(header).code for header, _, _ in BROKER}
    rows = {type(header).code for header, _, _ in NAMESRV}
    assert rights.NAMESRV.keys() == NAMESRV_ROUTES.keys() == rows | OPEN_AT_NAMESRV
    calls = {type(asked).__name__.removesuffix("Request").removesuffix("Command") for asked, _ in GRPC}
    assert rights.GRPC.keys() == {*GRPC_ROUTES, "Telemetry"} == calls


@pytest.mark.parametrize(
    "place", [(Port.BROKER, "", None), (Port.GRPC, "", None), (Port.NAMESRV, "New", 4711)]
)
def test_what_nobody_listed_is_refused_to_all_but_super_users(place: tuple[Port, str, int | None]) -> None:
    account = Account().given(Entry(Resource.parse("*"), (Action.ALL,), Decision.ALLOW))
    _, call = remoting(Port.BROKER, hc.BrokerRuntime(), b"")
    assert account.ask(place, call) == "authorization context is empty."


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (hr.SendHeartbeat(), b"xx"),
        (hr.LockQueues(), b""),
        (hg.CreateGroup(), b"["),
        (hr.BatchAckMessage(), b"{{"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(header: Header, body: bytes) -> None:
    place, call = remoting(Port.BROKER, header, body)
    assert Account().ask(place, call) == "parse authorization context error."


def test_a_header_without_its_topic_is_refused() -> None:
    place, call = remoting(Port.BROKER, ht.DeleteTopic(topic="t"), b"")
    call._command.ext = {}  # type: ignore[attr-defined]
    assert Account().ask(place, call) == "parse authorization context error."


def test_taking_back_a_message_without_its_topic_needs_all_of_them() -> None:
    unnamed = hp.SendMessage(topic="t", properties="A\x01b\x02TIMER_DEL_UNIQKEY\x01K1\x02")
    place, call = remoting(Port.BROKER, unnamed, b"")
    own = Entry(Resource.parse("Topic:t"), (Action.PUB,), Decision.ALLOW)
    assert "Topic:*" in Account().given(own).ask(place, call)
    every = Entry(Resource.parse("Topic:*"), (Action.PUB,), Decision.ALLOW)
    assert Account().given(every).ask(place, call) == ""
