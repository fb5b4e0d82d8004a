# SPDX-License-Identifier: Apache-2.0
"""Users and policies of a broker, as mqadmin and the dashboard ask for them."""

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
