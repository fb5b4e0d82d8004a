# SPDX-License-Identifier: Apache-2.0
"""How the needs of a request are read off it, by header, body or gRPC message.

A topic that is a group's retry topic is that group's business, and needs a right to the group. What a request only
points at, by a place in the log, needs the rights of what lies there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aerobee.protocol import access, bodies, names
from aerobee.protocol import properties as props
from aerobee.protocol.access import Action, Kind, Need
from aerobee.protocol.message import parse_offset_message_id
from aerobee.protocol.transaction_id import TransactionId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.fronts.gates.call import Call
    from aerobee.fronts.gates.guard import LookUp

PUB, SUB, CREATE, UPDATE, DELETE, GET, LIST = (
    Action.PUB,
    Action.SUB,
    Action.CREATE,
    Action.UPDATE,
    Action.DELETE,
    Action.GET,
    Action.LIST,
)
T = TypeVar("T")


class Asked(NamedTuple):
    call: Call
    cluster: str  # of this broker
    look_up: LookUp

    @property
    def header(self) -> Any:
        """Also gRPC's request."""
        return self.call.asked

    def body(self, kind: type[T]) -> T:
        return bodies.decode_request(self.call.body, kind)


Needs = Callable[[Asked], "Sequence[Need]"]


# -- topics and groups -----------------------------------------------------------------------------------------


def _topic(name: str, *actions: Action) -> Need:
    """Of a topic alone."""
    if names.is_retry(name):
        return access.group(_retry_owner(name), *actions)
    return access.topic(name, *actions)


def _retry_owner(topic: str) -> str:
    """POP's later form of retry topics says where the group's name ends."""
    return names.retry_group(topic).partition("+")[0]


def _sent_to(name: str, look_up: LookUp) -> list[Need]:
    """Consumers write their group's retry topic; traces are everybody's, but nobody makes topics by saying so."""
    if names.is_retry(name):
        return [access.group(_retry_owner(name), SUB)]
    if name == names.TRACE_TOPIC or (name.startswith(names.TRACE_PREFIX) and look_up.is_topic(name)):
        return []
    return [access.topic(name, PUB)]


def _of_group(topic: str, group: str, actions: tuple[Action, ...], look_up: LookUp) -> list[Need]:
    """What a group needs of a topic beside the right to itself."""
    if not names.is_retry(topic):
        return [access.topic(topic, *actions)]
    if topic == names.retry_topic(group):
        return []
    inner = names.normal_topic(topic, group)
    # %RETRY%a_b is where POP redelivers topic b to group a; unless there is a group a_b, whose own it is.
    if inner == topic or look_up.is_group(names.retry_group(topic)):
        return [access.group(_retry_owner(topic), *actions)]
    return [access.topic(inner, *actions)]


def _both(asked: Asked, topic: str, group: str, *actions: Action) -> list[Need]:
    return [*_of_group(topic, group, actions, asked.look_up), access.group(group, *actions)]


# -- forms of needs ----------------------------------------------------------------------------------------------


def topic(*actions: Action) -> Needs:
    return lambda asked: [_topic(asked.header.topic, *actions)]


def group(*actions: Action, field: str = "consumer_group") -> Needs:
    return lambda asked: [access.group(getattr(asked.header, field), *actions)]


def cluster(*actions: Action) -> Needs:
    return lambda asked: [access.cluster(asked.cluster, *actions)]


def named_cluster(*actions: Action) -> Needs:
    return lambda asked: [access.cluster(asked.header.cluster_name or asked.cluster, *actions)]


def every(*kinds: Kind, action: Action = LIST) -> Needs:
    return lambda asked: [access.every(kind, action) for kind in kinds]


def topic_and_group(*actions: Action, field: str = "consumer_group") -> Needs:
    """The topic is looked at first."""
    return lambda asked: _both(asked, asked.header.topic, getattr(asked.header, field), *actions)


def group_and_topic(*actions: Action, field: str = "consumer_group") -> Needs:
    return lambda asked: _both(asked, asked.header.topic, getattr(asked.header, field), *actions)[::-1]


def group_and_topic_if_named(*actions: Action) -> Needs:
    def needs(asked: Asked) -> list[Need]:
        header = asked.header
        topics = [header.topic or "", *(getattr(header, "topic_list", None) or "").split(";")]
        found = [access.group(header.consumer_group, *actions)]
        return found + [_topic(topic, *actions) for topic in topics if topic]

    return needs


# -- single requests ---------------------------------------------------------------------------------------------


def send(asked: Asked) -> list[Need]:
    """A message may also take back a delayed one, `topic+key`; without a topic, which old brokers write, any."""
    needs, text = _sent_to(asked.header.topic, asked.look_up), asked.header.properties or ""
    if props.TIMER_DEL_UNIQKEY in text:
        # Parsed as the operation does: of a name that is there twice the last counts.
        topic, plus, _ = props.parse(text).get(props.TIMER_DEL_UNIQKEY, "").partition("+")
        needs += _sent_to(topic, asked.look_up) if plus else [access.every(Kind.TOPIC, PUB)]
    return needs


def reply(asked: Asked) -> list[Need]:
    """It is pushed to the client it names, whatever its topic: who replies may write the topic of replies."""
    topics = dict.fromkeys((asked.header.topic, names.reply_topic(asked.cluster)))
    return [need for topic in topics for need in _sent_to(topic, asked.look_up)]


def pull(asked: Asked) -> list[Need]:
    """Who looks at a topic with a tool is in no group of anybody's: the topic is all there is to ask for."""
    topic, group = asked.header.topic, asked.header.consumer_group
    return [_topic(topic, SUB)] if group == names.TOOLS_GROUP else _both(asked, topic, group, SUB)


def recall(asked: Asked) -> list[Need]:
    """The handle is of the topic named, or the operation refuses it."""
    return _sent_to(asked.header.topic, asked.look_up)


def send_back(asked: Asked) -> list[Need]:
    """The message goes to the group: who sends it back must be able to read it where it is."""
    group = asked.header.group
    needs = [access.group(group, SUB)]
    topic = asked.look_up.topic_at(asked.header.offset)
    return needs if topic is None else needs + _of_group(topic, group, (SUB,), asked.look_up)


def view_message(asked: Asked) -> list[Need]:
    topic = asked.look_up.topic_at(asked.header.offset) or asked.header.topic
    return [_topic(topic, GET, SUB)] if topic else []


def end_transaction(asked: Asked) -> list[Need]:
    """By the topic of the half message, whatever the request says; old clients say none."""
    topic = asked.look_up.topic_at(asked.header.commit_log_offset)
    named = (asked.header.topic, topic)
    return [need for name in dict.fromkeys(named) if name for need in _sent_to(name, asked.look_up)]


def resume_check(asked: Asked) -> list[Need]:
    topic = asked.look_up.topic_at(_place(asked.header.msg_id)) or asked.header.topic
    return [_topic(topic, UPDATE)] if topic else [access.cluster(asked.cluster, UPDATE)]


def consume_directly(asked: Asked) -> list[Need]:
    header = asked.header
    topics = (asked.look_up.topic_at(_place(header.msg_id)), header.topic)
    found = [access.group(header.consumer_group, SUB)]
    for topic in dict.fromkeys(topics):
        if topic:
            found += _of_group(topic, header.consumer_group, (SUB,), asked.look_up)
    return found


def _place(message_id: str | None) -> int:
    return parse_offset_message_id(message_id or "")[1]


def heartbeat(asked: Asked) -> list[Need]:
    """Producers need nothing: what they send is looked at when they send it."""
    found = []
    for consumer in asked.body(bodies.Heartbeat).consumer_data_set:
        found.append(access.group(consumer.group_name, SUB))
        for each in consumer.subscription_data_set:
            found += _of_group(each.topic, consumer.group_name, (SUB,), asked.look_up)
    return found


def unregister(asked: Asked) -> list[Need]:
    group = asked.header.consumer_group
    return [access.group(group, SUB)] if group else []


def lock(asked: Asked) -> list[Need]:
    batch = asked.body(bodies.LockBatch)
    group = batch.consumer_group
    found = [access.group(group, SUB)]
    for topic in sorted({queue.topic for queue in batch.mq_set}):
        found += _of_group(topic, group, (SUB,), asked.look_up)
    return found


def check_client(asked: Asked) -> list[Need]:
    body = asked.body(bodies.CheckClient)
    return _both(asked, body.subscription_data.topic, body.group, SUB)


def query_assignment(asked: Asked) -> list[Need]:
    body = asked.body(bodies.AssignmentQuery)
    return _both(asked, body.topic, body.consumer_group, SUB)


def set_request_mode(asked: Asked) -> list[Need]:
    body = asked.body(bodies.RequestMode)
    return [_topic(body.topic, SUB), access.group(body.consumer_group, UPDATE)]


def batch_ack(asked: Asked) -> list[Need]:
    acks = bodies.decode_batch_ack(asked.call.body).acks if asked.call.body else []
    found: dict[Need, None] = {}
    for each in acks:
        found.update(dict.fromkeys(_both(asked, each.topic, each.consumer_group, SUB)))
    return list(found)


def heads(asked: Asked) -> list[Need]:
    """Of the topics it lists; a request without a list is told of all of them."""
    listed = asked.body(list[str]) if asked.call.body else []
    return [_topic(name, GET, SUB) for name in listed] or [access.every(Kind.TOPIC, GET, SUB)]


def create_topics(asked: Asked) -> list[Need]:
    return [_topic(each.topic_name, CREATE) for each in asked.body(bodies.TopicConfigList).topic_config_list]


def create_group(asked: Asked) -> list[Need]:
    return [access.group(asked.body(bodies.GroupConfig).group_name, CREATE)]


def create_groups(asked: Asked) -> list[Need]:
    configs = asked.body(bodies.GroupConfigList).group_config_list
    return [access.group(each.group_name, CREATE) for each in configs]


def group_figures(asked: Asked) -> list[Need]:
    header = asked.header
    found = [access.group(header.group or header.consumer_group or "", GET)]
    return [*found, _topic(header.topic, GET)] if header.topic else found


def query_queue(asked: Asked) -> list[Need]:
    found, group = [_topic(asked.header.topic, GET)], asked.header.consumer_group
    return [*found, access.group(group, GET)] if group else found


def correct_offsets(asked: Asked) -> list[Need]:
    header = asked.header
    groups = [*(header.filter_groups or "").split(","), header.compare_group]
    return [*(access.group(each, GET) for each in groups if each), _topic(header.topic, GET)]


def clone_offsets(asked: Asked) -> list[Need]:
    topic = asked.header.topic
    of_topics = _topic(topic, UPDATE) if topic else access.every(Kind.TOPIC, UPDATE)
    return [access.group(asked.header.dest_group, UPDATE), of_topics]


# -- gRPC --------------------------------------------------------------------------------------------------------


def _name(resource: Any) -> str:
    return names.in_namespace(resource.resource_namespace, resource.name)


def _grpc_both(asked: Asked, topic: Any, *actions: Action) -> list[Need]:
    """The group first."""
    return _both(asked, _name(topic), _name(asked.header.group), *actions)[::-1]


def grpc_topic(*actions: Action) -> Needs:
    return lambda asked: [_topic(_name(asked.header.topic), *actions)]


def grpc_queue(*actions: Action) -> Needs:
    return lambda asked: [_topic(_name(asked.header.message_queue.topic), *actions)]


def grpc_group_and_topic(*actions: Action) -> Needs:
    return lambda asked: _grpc_both(asked, asked.header.topic, *actions)


def grpc_group_and_queue(*actions: Action) -> Needs:
    return lambda asked: _grpc_both(asked, asked.header.message_queue.topic, *actions)


def grpc_send(asked: Asked) -> list[Need]:
    topics = dict.fromkeys(_name(message.topic) for message in asked.header.messages)
    return [need for topic in topics for need in _sent_to(topic, asked.look_up)]


def grpc_publish(asked: Asked) -> list[Need]:
    return _sent_to(_name(asked.header.topic), asked.look_up)


def grpc_end_transaction(asked: Asked) -> list[Need]:
    known = TransactionId.parse(asked.header.transaction_id)
    half = None if known is None else asked.look_up.topic_at(known.physical_offset)
    named = (_name(asked.header.topic), half)
    return [need for name in dict.fromkeys(named) if name for need in _sent_to(name, asked.look_up)]


def grpc_named_group(asked: Asked) -> list[Need]:
    group = _name(asked.header.group)
    return [access.group(group, SUB)] if group else []


def grpc_telemetry(asked: Asked) -> list[Need]:
    """Of settings; what else a client says there are answers."""
    if asked.header.WhichOneof("command") != "settings":
        return []
    settings = asked.header.settings
    if settings.WhichOneof("pub_sub") == "publishing":
        return [
            need for topic in settings.publishing.topics for need in _sent_to(_name(topic), asked.look_up)
        ]
    group = _name(settings.subscription.group)
    found = [access.group(group, SUB)] if settings.HasField("subscription") else []
    for each in settings.subscription.subscriptions:
        found += _of_group(_name(each.topic), group, (SUB,), asked.look_up)
    return found
