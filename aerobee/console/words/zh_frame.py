# SPDX-License-Identifier: Apache-2.0
"""Chinese of what every page has: menu, search, lists, login, failures."""

from __future__ import annotations

FRAME = {
    "Overview": "概览",
    "Topics": "主题",
    "Groups": "消费组",
    "Menu": "菜单",
    "Search": "搜索",
    "Pages": "分页",
    "Back": "上一页",
    "Next": "下一页",
    "page {page} of {pages}, {total} in all": "第 {page} 页,共 {pages} 页,{total} 项",
    "Skip to the content": "跳到正文",
    "Name server": "名称服务器",
    "read-only": "只读",
    "Log in": "登录",
    "Log out": "退出登录",
    "Name": "名称",
    "Password": "密码",
    "Give a name and a password.": "请输入名称和密码。",
    "This cluster asks who you are. Use an account of the cluster; you see and do here what it may.":
        "该集群需要身份认证。请使用集群的账号登录;在此能看到和能做的,取决于该账号的权限。",
    "To the overview": "回到概览",
    "Nothing has that in its name.": "没有名称包含它的主题或消费组。",
    "Type a part of a name of a topic or a group, or the id of a message.":
        "请输入主题或消费组名称的一部分,或消息的 ID。",
    "No topic has a message of that id.": "没有主题包含该 ID 的消息。",
    "One that waits for its time is under Delayed, one that died with its group.":
        "仍在等待投递的消息在“延迟消息”页,死信在其消费组页。",
    "and {count} more; say more of the name": "还有 {count} 项;请输入更完整的名称",
    "not told": "未提供",
    "No such page": "页面不存在",
    "The menu has those there are.": "可用的页面都在菜单中。",
    "this console is read-only; nothing was changed": "控制台为只读;没有任何改动",
    "Read-only": "只读",
    "Start it without --read-only to change things from here.": "要在此修改,请不带 --read-only 启动。",
    "Not accepted": "未被接受",
    "This account may not do that": "该账号没有权限",
    "Log in with an account that may, or have it granted. "
    "A topic or group that it may look at opens by its whole name in the search field.": (
        "请用有权限的账号登录,或申请授权。有权查看的主题或消费组,可在搜索框中输入全名打开。"
    ),
    "This broker cannot tell": "该 Broker 无法提供",
    "It is a request of Aerobee's own, or newer than the broker; the other pages work.":
        "这是 Aerobee 特有的请求,或比该 Broker 更新;其他页面可用。",
    "Not there": "不存在",
    "The cluster does not answer": "集群没有响应",
    "Is it running? This page tries again when you load it again.": "它在运行吗?重新加载页面会再次尝试。",
    "The broker refused": "Broker 拒绝了请求",
    "That does not work": "无法完成",
}  # fmt: skip
