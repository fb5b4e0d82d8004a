# SPDX-License-Identifier: Apache-2.0
"""Chinese of the settings of a broker."""

from __future__ import annotations

SETTINGS = {
    "This broker tells names and values only: not what they may be, nor which take effect while it runs.":
        "该 Broker 只提供名称和值:不提供取值范围,也不说明哪些可在运行时生效。",
    "A part of its name, or of what it does": "名称或说明的一部分",
    "Only": "仅显示",
    "those that can change now": "可在运行时修改的",
    "those that are not as by default": "与默认值不同的",
    "setting": "配置项",
    "value": "值",
    "may be": "取值范围",
    "takes effect": "生效",
    "what it does": "说明",
    "default": "默认",
    "set": "已设置",
    "at once": "立即",
    "at the next start": "下次启动",
    "No setting has that.": "没有匹配的配置项。",
    "Search for another word, or show all.": "请换一个词,或显示全部。",
    "set: a file, a flag, the environment or a change since the start; the default is {value}":
        "已设置:来自文件、参数、环境变量或启动后的修改;默认值为 {value}",
    "RocketMQ's name": "RocketMQ 名称",
    "It cannot be changed from here: set it in the settings file or by a flag, and start the broker anew.":
        "不能在此修改:请在配置文件或启动参数中设置,并重启 Broker。",
    "New value": "新值",
    "That is what it is already.": "与当前值相同。",
    "Change it?": "修改?",
    "{name} of {broker} goes from {before} to {after}.": "{broker} 的 {name} 将从 {before} 改为 {after}。",
    "At once, and until the next start: to keep it, put it into the settings file too.":
        "立即生效,直到下次启动:要保留,请同时写入配置文件。",
    "This broker does not say which values it takes, nor whether it takes effect before its next start.":
        "该 Broker 不说明可取哪些值,也不说明是否在下次启动前生效。",
    "The other brokers stay as they are.": "其他 Broker 保持不变。",
    "{name} cannot be changed while the broker runs; nothing was changed": "{name} 不能在运行时修改;没有任何改动",
    "{name} was changed meanwhile: look at it again first": "{name} 期间已被修改:请先重新查看",
    "{name} of {broker} is {value} now.": "{broker} 的 {name} 现为 {value}。",
    "{broker} tells no setting {name}.": "{broker} 没有提供配置项 {name}。",
}  # fmt: skip
