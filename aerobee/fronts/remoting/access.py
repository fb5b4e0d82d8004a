# SPDX-License-Identifier: Apache-2.0
"""Users, policies (3001 to 3010) and the audit log, one adapter each: see `broker/operations/admin/access.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.admin import access as op
from aerobee.net.connection import Reply
from aerobee.protocol import bodies

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request
    from aerobee.protocol.headers import accounts as h


def _json(found: object | None) -> Reply:
    return Reply(body=b"" if found is None else bodies.encode(found))


async def create_user(request: Request, header: h.CreateUser, broker: Broker) -> Answer:
    access, info = op.kept(broker.access), bodies.decode_request(request.command.body, bodies.UserInfo)
    await op.create_user(request.user or "", header.username or "", info, access)
    return Reply()


async def update_user(request: Request, header: h.UpdateUser, broker: Broker) -> Answer:
    access, info = op.kept(broker.access), bodies.decode_request(request.command.body, bodies.UserInfo)
    await op.update_user(request.user or "", header.username or "", info, access)
    return Reply()


async def delete_user(request: Request, header: h.DeleteUser, broker: Broker) -> Answer:
    await op.delete_user(request.user or "", header.username or "", op.kept(broker.access))
    return Reply()


def get_user(request: Request, header: h.GetUser, broker: Broker) -> Answer:
    return _json(op.get_user(request.user or "", header.username or "", op.kept(broker.access)))


def list_users(request: Request, header: h.ListUsers, broker: Broker) -> Answer:
    return _json(op.list_users(request.user or "", header.filter or "", op.kept(broker.access)))


async def put_acl(request: Request, header: h.CreateAcl | h.UpdateAcl, broker: Broker) -> Answer:
    access, info = op.kept(broker.access), bodies.decode_request(request.command.body, bodies.AclInfo)
    await op.put_acl(request.user or "", header.subject or "", info, access)
    return Reply()


async def delete_acl(request: Request, header: h.DeleteAcl, broker: Broker) -> Answer:
    access = op.kept(broker.access)
    await op.delete_acl(
        request.user or "", header.subject or "", header.policy_type or "", header.resource or "", access
    )
    return Reply()


def get_acl(request: Request, header: h.GetAcl, broker: Broker) -> Answer:
    return _json(op.get_acl(header.subject or "", op.kept(broker.access)))


def list_acls(request: Request, header: h.ListAcls, broker: Broker) -> Answer:
    found = op.list_acls(header.subject_filter or "", header.resource_filter or "", op.kept(broker.access))
    return _json(found)


def read_audit(request: Request, header: h.ReadAudit, broker: Broker) -> Answer:
    return Reply(body=op.newest_audit(header.last, broker.access))
