# SPDX-License-Identifier: Apache-2.0
"""Chinese of groups and their consumers."""

from __future__ import annotations

GROUPS = {
    "group": "消费组",
    "consumers": "消费者",
    "ready": "待消费",
    "in flight": "处理中",
    "retrying": "重试中",
    "dead": "死信",
    "done, a second": "完成/秒",
    "oldest": "最老",
    "online": "在线",
    "nobody": "无消费者",
    "conflict": "冲突",
    "Find a group": "查找消费组",
    "No group has that in its name.": "没有名称包含它的消费组。",
    "There are no groups yet.": "还没有消费组。",
    "A consumer makes its group when it connects: aerobee consume orders -g billing":
        "消费者连接时会创建消费组:aerobee consume orders -g billing",
    "More than {limit} groups are too many to order by a figure: narrow the search first.":
        "超过 {limit} 个消费组时无法按数值排序:请先缩小搜索范围。",
    "This broker tells less than Aerobee's: what POP consumers hold is counted as ready, delayed retries are not told.":
        "该 Broker 提供的信息少于 Aerobee:POP 消费者持有的消息计为待消费,延时中的重试未提供。",
}  # fmt: skip
