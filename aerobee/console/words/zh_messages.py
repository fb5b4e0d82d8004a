# SPDX-License-Identifier: Apache-2.0
"""Chinese of a message and of brokers."""

from __future__ import annotations

MESSAGES = {
    "stored": "写入",
    "state": "状态",
    "id of the broker": "Broker 的编号",
    "Where it is": "当前位置",
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
    "why: {reason}": "原因:{reason}",
}  # fmt: skip

WHAT_HAPPENED = {
    "finished, or filtered out": "已完成,或被过滤",
    "finished after a retry": "重试后完成",
    "leased": "租用中",
    "until when is not known": "到期时间未知",
    "{age} from now": "还有 {age}",
    "comes back at once": "即将返回",
    "waits for its next attempt": "等待下次尝试",
    "its copy": "其副本",
    "held by": "持有者",
    "last error": "最近的错误",
    "Only the first {count} groups are shown; {more} more read this topic.":
        "仅显示前 {count} 个消费组;另有 {more} 个读取该主题。",
    "This broker tells offsets only: not until when a POP consumer holds a message, nor what was finished out of turn.":
        "该 Broker 只提供位点:不说明 POP 消费者持有消息到何时,也不说明哪些消息已提前完成。",
    "What happened": "经过",
    "what": "事件",
    "attempt": "次数",
    "by": "执行者",
    "took": "耗时",
    "outcome": "结果",
    "when, beside the others": "相对其他事件的时间",
    "handled": "处理",
    "came back for a retry": "返回重试",
    "sent back, to wait": "退回并等待",
    "died": "成为死信",
    "transaction": "事务",
    "well": "成功",
    "failed": "失败",
    "no end was told": "未报告结束",
    "This account may not read traces.": "该账户无权读取轨迹。",
    "There is no trace of it: who handled it and how long that took is not known. Clients write one with trace=True in "
    "their options, Java's with enableMsgTrace.":
        "没有该消息的轨迹:不知道由谁处理、耗时多久。客户端在选项中设置 trace=True(Java 为 enableMsgTrace)后会写入轨迹。",
    "Its producer traces; no consumer has written a trace of it.": "生产者写了轨迹;没有消费者写过它的轨迹。",
    "Its consumers trace, its producer does not.": "消费者写了轨迹,生产者没有。",
    "One consumer gets it now, whatever its queue and offset say; nothing of the group moves.":
        "由一个消费者立即处理,与队列和位点无关;消费组的进度不变。",
}  # fmt: skip
