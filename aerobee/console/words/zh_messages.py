# SPDX-License-Identifier: Apache-2.0
"""Chinese of a message and of brokers."""

from __future__ import annotations

MESSAGES = {
    "stored": "写入",
    "state": "状态",
    "id of the broker": "Broker 的编号",
    "Where it is": "当前位置",
    "passed: finished, or given back for a retry": "已越过:完成,或退回重试",
    "handed out, and not passed yet": "已投递,尚未越过",
    "waits": "等待中",
    "Have it handled there now": "让它立即处理",
    "The whole body as a file": "下载完整消息体",
    "A copy goes to the topic it came from, as a new message; the dead letter stays.":
        "副本将作为新消息发送到原主题;死信保留。",
    "A copy goes to the topic as a new message: every group that reads it gets it again.":
        "副本将作为新消息发送到该主题:读取它的每个消费组都会再次收到。",
    "Send it again": "重新发送",
    "Sent again to {topic} as {id}.": "已重新发送到 {topic},编号 {id}。",
    "{client} answered {result} after {time} ms. {remark}": "{client} 在 {time} 毫秒后答复 {result}。{remark}",
    "cluster": "集群",
    "slaves": "从节点",
    "Send producers elsewhere": "让生产者发往别处",
    "Let producers send to it": "允许生产者发往它",
    "Before it is stopped: consumers go on, nothing new comes.": "停机之前使用:消费者继续,不再有新消息。",
    "Figures, by RocketMQ's names": "运行数据(RocketMQ 的名称)",
    "Producers are sent elsewhere than to {broker}.": "生产者将发往 {broker} 以外的 Broker。",
    "Producers may send to {broker}.": "生产者可以发往 {broker}。",
    "Dead letters": "死信",
    "from {topic}": "来自 {topic}",
    "it does not say which topic it came from": "未说明来自哪个主题",
    "so many a second": "每秒条数",
    "Send those chosen again": "重新发送所选",
    "As new messages to the topics they came from: every group that reads those gets them. The dead letters stay; what "
    "is sent twice is consumed twice.":
        "作为新消息发送到原主题:读取它们的每个消费组都会收到。死信保留;发送两次就会消费两次。",
    "All as JSON lines": "全部导出为 JSON 行",
    "The group has no dead letters.": "该组没有死信。",
    "A message dies here when it has failed as often as the group allows.": "消息失败次数达到上限后会成为死信。",
    "choose dead letters first; nothing was sent": "请先选择死信;没有发送任何消息",
    "the rate is {rate}; give 1 to {most} a second": "速率为 {rate};请输入每秒 1 到 {most}",
    "{count} dead letters were sent again; the dead letters stay.": "已重新发送 {count} 条死信;死信保留。",
}  # fmt: skip
