# SPDX-License-Identifier: Apache-2.0
"""Signatures against those of RocketMQ's own clients, and what does not pass for one."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from aerobee.protocol import accounts
from aerobee.protocol.accounts import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    Credentials,
    GrpcSignature,
    grpc_signature,
    is_signed,
    is_signed_for_grpc,
    is_signed_whole,
    parse_authorization,
    sign,
    signature,
)
from aerobee.protocol.command import Command

NEWEST, GO = 479, 317
SEND = {
    "a": "PG_demo", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x01AC110001\x02WAIT\x01true", "j": "0", "k": "false", "m": "false", ACCESS_KEY: "rocketmq2",
}  # fmt: skip
BODY, SECRET = b"hello aerobee", "12345678"
GOOD = "TrfW5Dvlpo7nwNJ30UOqwlZe+Cc="


def signed(fields: dict[str, str], body: bytes = BODY, version: int = NEWEST, secret: str = SECRET) -> bool:
    return is_signed(secret, fields, body, version)


# Each as the Java client 5.3.3 makes it.
@pytest.mark.parametrize(
    ("fields", "body", "secret", "made"),
    [
        (SEND, BODY, SECRET, GOOD),
        (
            {"topic": "TopicTest", "acceptStandardJsonOnly": "true", ACCESS_KEY: "STS.abc", SECURITY_TOKEN: "tok-1"},
            b"", "sk-of-sts", "m5HKcqa6SSZiIrSwYB7eXAixD2U=",
        ),
        (
            {ACCESS_KEY: "用户A"},
            '{"clientID":"127.0.0.1@1","consumerDataSet":[],"producerDataSet":[{"groupName":"PG_演示"}]}'.encode(),
            "密码-12345", "BshBgCO8mEgkq16iE7pm+Hp6kM4=",
        ),
    ],
)  # fmt: skip
def test_a_remoting_signature_is_javas(fields: dict[str, str], body: bytes, secret: str, made: str) -> None:
    assert signature(secret, fields, body) == made
    assert signed({**fields, SIGNATURE: made}, body, secret=secret)


@pytest.mark.parametrize(
    ("date", "secret", "made"),
    [
        ("20240102T030405Z", "12345678", "0183EC6E9BF0753CA4402ACB305F8E39D222458F"),
        ("20240102T030405Z", "密码-12345", "437FFCBC5DED081DBB36480D18A18EE38E5ADDDB"),
        ("2024-01-02T03:04:05.000000001+08:00", "sk", "B21CA1E13B8BB9CFAB07CCC53B10D4939A66D4D6"),
    ],
)
def test_a_grpc_signature_is_javas(date: str, secret: str, made: str) -> None:
    assert grpc_signature(secret, date).hex().upper() == made
    for written in (made, made.lower()):
        given = parse_authorization(
            f"MQv2-HMAC-SHA1 Credential=ak, SignedHeaders=x-mq-date-time, Signature={written}"
        )
        assert given.access_key == "ak"
        assert is_signed_for_grpc(secret, date, given.signature)
        assert not is_signed_for_grpc(secret, date + "0", given.signature)
        assert not is_signed_for_grpc("", date, grpc_signature("", date)), (
            "an empty secret signs for everybody"
        )


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "!!",
        GOOD[:-1],
        GOOD + "=",
        GOOD.lower(),
        GOOD[::-1],
        GOOD * 1000,
        " " + GOOD,
        "\0" + GOOD,
        "é" + GOOD[1:],
    ],
)
def test_what_is_nearly_the_signature_is_not(wrong: str) -> None:
    assert not signed({**SEND, SIGNATURE: wrong})


def test_whatever_is_changed_the_signature_no_longer_fits() -> None:
    good = {**SEND, SIGNATURE: GOOD}
    assert signed(good)
    assert not signed(good, body=BODY + b"!")
    assert not signed(good, body=b"")
    assert not signed(good, secret="12345679")
    for name in SEND:
        assert not signed({**good, name: good[name] + "1"}), name
    assert not signed({**good, "extra": "1"})
    assert not signed({name: value for name, value in good.items() if name != "e"})
    assert not is_signed("", {"topic": "t", SIGNATURE: signature("", {"topic": "t"}, b"")}, b"", NEWEST)


def test_fields_that_a_client_adds_after_signing_are_left_out() -> None:
    good = {**SEND, SIGNATURE: GOOD}
    assert signed({**good, "__ZONE_NAME": "z1", "__ZONE_MODE": "false"})
    assert signed({**good, SECURITY_TOKEN: "token of the Go client"}, version=GO)
    assert signed({**good, "_UNIQUE_KEY_QUERY": "true"}, version=GO)
    assert signed({**good, "_UNIQUE_KEY_QUERY": "true", SECURITY_TOKEN: "t", "__ZONE_NAME": "z"}, version=GO)
    assert not signed({**good, "_UNIQUE_KEY_QUERY": "true"}), "newer clients sign it"
    zoned = {**SEND, "__ZONE_NAME": "z1"}
    assert signed({**zoned, SIGNATURE: signature(SECRET, zoned, BODY)}), "a broker as client signs it"
    assert not signed({**good, "__ZONE_OTHER": "z1"})


def test_our_own_signing_passes() -> None:
    command = sign(Command(310, ext=dict(SEND), body=BODY), Credentials("ann", "12345678", "tok"))
    assert signed(command.ext_dict())
    assert repr(Credentials("ann", "12345678")) == "Credentials('ann')"


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("MQv2-HMAC-SHA1 Credential=ak//Rocketmq, SignedHeaders=x-mq-date-time, Signature=ab", "ak"),
        ("Foo Credential=ak/cn-1/RocketMQ,Signature=AB", "ak"),
        ("MQv2-HMAC-SHA1 Signature=ab, Credential=", ""),
        ("MQv2-HMAC-SHA1 Signature=ab", ""),
    ],
)
def test_the_header_is_read_as_clients_write_it(text: str, user: str) -> None:
    assert parse_authorization(text) == GrpcSignature(user, b"\xab")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("MQv2-HMAC-SHA1", "authentication header is incorrect."),
        ("MQv2-HMAC-SHA1 Credential", "authentication keyValues length is incorrect, actual length=1."),
        ("MQv2-HMAC-SHA1 Credential=ak, Signature=xyz", "create authentication context error."),
        ("MQv2-HMAC-SHA1 Credential=ak, Signature=a", "create authentication context error."),
    ],
)
def test_a_header_that_is_none_is_refused_in_rocketmqs_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why.replace('.', '[.]')}$"):
        parse_authorization(text)


def test_a_header_without_a_signature_has_an_empty_one() -> None:
    assert parse_authorization("MQv2-HMAC-SHA1 Credential=ak") == GrpcSignature("ak", b"")


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_secrets_of_every_length_sign_as_the_standard_says(size: int) -> None:
    secret = "s" * size
    expected = hmac.new(secret.encode(), b"12body", hashlib.sha1).digest()
    assert signature(secret, {"b": "2", "a": "1"}, b"body") == base64.b64encode(expected).decode()
    assert is_signed_whole(secret, b"12body", base64.b64encode(expected))
    assert not is_signed_whole(secret, b"12body!", base64.b64encode(expected))
    assert not is_signed_whole("", b"", base64.b64encode(hmac.new(b"", b"", hashlib.sha1).digest()))
    assert not is_signed_whole(secret, b"12body", b"")


@pytest.mark.parametrize("count", [63, 64, 65, 200])
def test_requests_of_any_number_of_fields_are_signed_in_order_of_the_names(count: int) -> None:
    fields = {f"n{number:03}": str(number) for number in reversed(range(count))}
    content = "".join(str(number) for number in range(count)).encode()
    expected = base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    assert signature("secret", {**fields, SIGNATURE: "x"}, b"") == expected


def test_a_request_without_an_account_is_left_as_it_is() -> None:
    command = Command(310, ext={"a": "1"}, body=BODY)
    assert sign(command, Credentials()) is command
    assert command.ext == {"a": "1"}
    sign(command, Credentials("ann", "12345678"))
    assert command.ext_dict().keys() == {"a", ACCESS_KEY, SIGNATURE}


@pytest.mark.parametrize(("version", "leaves_out"), [(399, True), (400, False)])
def test_the_last_version_that_did_not_sign_the_unique_key(version: int, leaves_out: bool) -> None:
    assert signed({**SEND, SIGNATURE: GOOD, "_UNIQUE_KEY_QUERY": "true"}, version=version) is leaves_out


def test_the_order_of_many_fields_is_not_remembered() -> None:
    """Strangers would fill a broker's memory with them."""
    accounts._order.cache_clear()
    signature("secret", {f"few{n}": "1" for n in range(64)}, b"")
    assert accounts._order.cache_info().currsize == 1
    signature("secret", {f"many{n}": "1" for n in range(65)}, b"")
    assert accounts._order.cache_info().currsize == 1
