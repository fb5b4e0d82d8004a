# SPDX-License-Identifier: Apache-2.0
"""Chinese of the overview and of what is wrong right now."""

from __future__ import annotations

OVERVIEW = {
    "in": "写入",
    "out": "读出",
    "now": "现在",
    "out, a second": "读出/秒",
    "dead letters": "死信",
    "disk used": "磁盘使用",
    "broker late by": "Broker 延迟",
    "What is wrong right now": "当前的问题",
    "Nothing.": "没有。",
    "Every broker answers, every group with work gets on with it, and somebody reads every topic.":
        "所有 Broker 均有响应,所有有任务的消费组都在推进,每个主题都有人读取。",
    "and {count} more": "还有 {count} 个",
    "Messages a second": "每秒消息数",
    "Not finished": "未完成",
    "Groups with most to do": "积压最多的消费组",
    "Brokers": "Broker",
    "broker": "Broker",
    "address": "地址",
    "version": "版本",
    "running for": "已运行",
    "does not answer": "无响应",
    "Topics: {topics}. Groups: {groups}. Looked at": "主题 {topics} 个,消费组 {groups} 个;采样于",
    "The curve begins with the next looks.": "曲线将从接下来的采样开始。",
    "Broker {broker} does not answer.": "Broker {broker} 没有响应。",
    "Broker {broker} at {address} has been gone since {since} ({time}).":
        "地址为 {address} 的 Broker {broker} 自 {since} 起失联({time})。",
    "It went without a goodbye: {why}. Read the end of its log and start it again: its messages wait there, and clients "
    "use the other brokers.":
        "它未注销就断开了:{why}。请查看其日志末尾并重新启动它:消息仍在其磁盘上,客户端会使用其他 Broker。",
    "Broker {broker} refuses messages.": "Broker {broker} 拒绝接收消息。",
    "It says: {reason}. Consumers go on.": "原因:{reason}。消费不受影响。",
    "refuses messages": "拒绝消息",
    "The name servers still name it at {address}.": "名称服务器仍登记其地址 {address}。",
    "The disk is full: {used} are used.": "磁盘已满:已使用 {used}。",
    "The disk is nearly full: {used} are used.": "磁盘将满:已使用 {used}。",
    "From {limit} on it refuses messages. Free space, or keep messages for less long.":
        "达到 {limit} 后会拒绝写入。请释放空间,或缩短消息保留时间。",
    "The disk will be full in {time}.": "磁盘将在 {time} 后写满。",
    "{used} are used, and it grows; from {limit} on messages are refused.":
        "已使用 {used},且在增长;达到 {limit} 后拒绝写入。",
    "The broker is busy: requests wait {time}.": "Broker 繁忙:请求等待 {time}。",
    "It has been so for the last three looks.": "最近三次采样均如此。",
    "Consumers of {group} subscribe differently.": "{group} 的消费者订阅不一致。",
    "They lose messages of {topics}. All consumers of a group need the same subscription.":
        "它们会丢失 {topics} 的消息。同组的所有消费者必须使用相同的订阅。",
    "{group} is paused, and {count} messages wait.": "{group} 已暂停,有 {count} 条消息在等待。",
    "Its consumption is switched off; resume it on its page.": "其消费已关闭;可在其页面恢复。",
    "Nobody consumes for {group}: {count} messages wait.": "{group} 没有消费者:{count} 条消息在等待。",
    "The oldest waits for {time}. Start its consumers, or delete the group if it is not used any more.":
        "最老的已等待 {time}。请启动消费者;若不再使用,可删除该组。",
    "{group} stands still: nothing finished for {time}.": "{group} 停滞:{time} 内没有完成任何消息。",
    "Its consumers are connected and take nothing, while {count} messages wait: their filter fits none of them, "
    "they are paused, or they have no queue.":
        "消费者已连接但不取消息,而有 {count} 条在等待:过滤条件不匹配、已暂停,或没有分到队列。",
    "Its consumers hold {count} messages and answer for none.": "消费者持有 {count} 条消息,没有确认任何一条。",
    "Its consumers hold messages and answer for none: {clients}.": "消费者持有消息而未确认:{clients}。",
    "{count} messages of {group} died lately.": "{group} 最近有 {count} 条消息成为死信。",
    "They failed as often as the group allows; its dead letters have them, {total} in all.":
        "它们的失败次数达到上限;死信中共有 {total} 条。",
    "Nobody reads topic {topic}.": "主题 {topic} 没有人读取。",
    "It keeps {count} messages, and no group has ever read it.": "其中有 {count} 条消息,从未有消费组读取。",
    "It keeps one message, and no group has ever read it.": "其中有一条消息,从未有消费组读取。",
    "Nobody reads {count} more topics.": "另有 {count} 个主题没有人读取。",
    "Among them {topics}.": "其中有 {topics}。",
}  # fmt: skip
