# SPDX-License-Identifier: Apache-2.0
"""Chinese of topics and their messages."""

from __future__ import annotations

TOPICS = {
    "topic": "主题",
    "queues": "队列",
    "brokers": "Broker",
    "messages": "消息数",
    "in, a second": "写入/秒",
    "last stored": "最近写入",
    "Find a topic": "查找主题",
    "No topic has that in its name.": "没有名称包含它的主题。",
    "There are no topics yet.": "还没有主题。",
    "Create one here, or just send to one: aerobee send orders hello":
        "在此创建,或直接发送一条消息:aerobee send orders hello",
    "More than {limit} topics are too many to order by a figure: narrow the search first.":
        "超过 {limit} 个主题时无法按数值排序:请先缩小搜索范围。",
    "Without retry, dead-letter and system topics": "不含重试、死信和系统主题",
    "With retry, dead-letter and system topics": "包含重试、死信和系统主题",
    "Create a topic": "创建主题",
    "letters, digits, - and _": "字母、数字、- 和 _",
    "Queues on each broker": "每个 Broker 的队列数",
    "What it is for": "用途",
    "ordinary messages": "普通消息",
    "messages in order (FIFO)": "顺序消息 (FIFO)",
    "delayed messages": "延时消息",
    "transactions": "事务消息",
    "queues is {queues}; give a number": "队列数为 {queues};请输入数字",
    "topic {topic} exists already": "主题 {topic} 已存在",
    "Topic {topic} was created.": "主题 {topic} 已创建。",
}  # fmt: skip
