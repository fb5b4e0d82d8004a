# SPDX-License-Identifier: Apache-2.0
"""Users and policies of a broker, as mqadmin and the dashboard ask for them; and the accounts of a plain_acl.yml."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header


class CreateUser(Header):
    code = RequestCode.AUTH_CREATE_USER
    username: str | None = None


class UpdateUser(Header):
    code = RequestCode.AUTH_UPDATE_USER
    username: str | None = None


class DeleteUser(Header):
    code = RequestCode.AUTH_DELETE_USER
    username: str | None = None


class GetUser(Header):
    code = RequestCode.AUTH_GET_USER
    username: str | None = None


class ListUsers(Header):
    code = RequestCode.AUTH_LIST_USER
    filter: str | None = None


class CreateAcl(Header):
    code = RequestCode.AUTH_CREATE_ACL
    subject: str | None = None


class UpdateAcl(Header):
    code = RequestCode.AUTH_UPDATE_ACL
    subject: str | None = None


class DeleteAcl(Header):
    code = RequestCode.AUTH_DELETE_ACL
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAcl(Header):
    code = RequestCode.AUTH_GET_ACL
    subject: str | None = None


class ListAcls(Header):
    code = RequestCode.AUTH_LIST_ACL
    subject_filter: str | None = None
    resource_filter: str | None = None


class ReadAudit(Header):
    """The newest lines of the audit log come as they are written, the oldest of them first."""

    code = RequestCode.AEROBEE_READ_AUDIT
    last: int = 100


# -- plain_acl.yml -----------------------------------------------------------------------------------------------


class UpdateAclConfig(Header):
    """What is not said stays; lists are written `name=PERM,name=PERM`."""

    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"UpdateAclConfig({self.access_key!r})"


class DeleteAclConfig(Header):
    code = RequestCode.DELETE_ACL_CONFIG
    access_key: str


class GetAclVersion(Header):
    code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO


class GetAclVersionResult(Header):
    version: str  # DataVersion of plain_acl.yml, as JSON
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None  # of every file by its path, as JSON


class UpdateWhiteAddresses(Header):
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetAclConfig(Header):
    code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
