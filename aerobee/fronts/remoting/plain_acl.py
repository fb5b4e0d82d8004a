# SPDX-License-Identifier: Apache-2.0
"""The accounts of plain_acl.yml (50 to 54), one adapter each; the work is in `broker/operations/admin/plain_acl.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.admin import plain_acl as op
from aerobee.net.connection import Reply
from aerobee.protocol import bodies
from aerobee.protocol.headers import accounts as h
from aerobee.protocol.message import host_text

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request


def put_account(request: Request, header: h.UpdateAclConfig, broker: Broker) -> Answer:
    acl = op.in_force(broker.access, header.code)
    op.put_account(request.user or "", header, acl, broker.clock.wall())
    return Reply()


def delete_account(request: Request, header: h.DeleteAclConfig, broker: Broker) -> Answer:
    acl = op.in_force(broker.access, header.code)
    op.delete_account(request.user or "", header.access_key, acl, broker.clock.wall())
    return Reply()


def replace_white_addresses(request: Request, header: h.UpdateWhiteAddresses, broker: Broker) -> Answer:
    acl, file = op.in_force(broker.access, header.code), header.acl_file_full_path or ""
    op.replace_white_addresses(request.user or "", header.global_white_addrs, file, acl, broker.clock.wall())
    return Reply()


def versions(request: Request, header: h.GetAclVersion, broker: Broker) -> Answer:
    found = op.versions(op.in_force(broker.access, header.code))
    return Reply(
        header=h.GetAclVersionResult(
            version=bodies.encode(found.main).decode(),
            all_acl_file_version=bodies.encode(found.by_file).decode(),
            broker_name=broker.config.name,
            broker_addr=host_text(broker.store.store_host),
            cluster_name=broker.config.cluster,
        )
    )


def config(request: Request, header: h.GetAclConfig, broker: Broker) -> Answer:
    return Reply(body=bodies.encode(op.config(broker.access, op.in_force(broker.access, header.code))))
