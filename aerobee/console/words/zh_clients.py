# SPDX-License-Identifier: Apache-2.0
"""Chinese of clients."""

from __future__ import annotations

CLIENTS = {
    "Clients": "客户端",
    "Client, address, group, topic or language": "客户端、地址、消费组、主题或语言",
    "Only the first {limit} groups were asked for their consumers; {left} were not.":
        "只查询了前 {limit} 个消费组的消费者;另有 {left} 个未查询。",
    "This broker does not tell who is connected as a producer: only consumers are shown.":
        "该 Broker 不提供已连接的生产者:仅显示消费者。",
    "Producers": "生产者",
    "consumes in": "消费组",
    "produces in": "生产组",
    "its groups subscribe to": "所在组的订阅",
    "No client has that.": "没有匹配的客户端。",
    "Nobody is connected.": "没有客户端连接。",
    "Start one: aerobee consume orders -g billing": "启动一个:aerobee consume orders -g billing",
    "No client {client} is connected now.": "客户端 {client} 当前没有连接。",
    "Consumes in": "所在消费组",
    "how": "方式",
    "It says nothing of itself: {why}": "它没有提供自身信息:{why}",
    "fetched, a second": "拉取/秒",
    "failed in the last hour": "最近一小时失败",
    "ms for one": "每条毫秒",
    "last fetch": "最近拉取",
    "last consumed": "最近消费",
    "It has no queue: there are more consumers than queues, or it has just come.":
        "没有分到队列:消费者多于队列,或刚刚加入。",
    "What it was started with": "启动参数",
}  # fmt: skip
