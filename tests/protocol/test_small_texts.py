# SPDX-License-Identifier: Apache-2.0
"""Small texts that two sides must read alike: lengths of time, recall handles, plain accounts, patterns of addresses."""

from __future__ import annotations

import base64
from ipaddress import ip_address

import pytest

from aerobee.clock import ManualClock
from aerobee.errors import IllegalOperation, ProtocolError
from aerobee.protocol.address_patterns import parse_pattern
from aerobee.protocol.bodies.access import PlainAccessConfig, UserInfo
from aerobee.protocol.bodies.registration import _Reader
from aerobee.protocol.bodies.static_topics import MappedPart, QueueMapping, QueueMappingInfo
from aerobee.protocol.durations import in_words, relative
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.accounts import UpdateAclConfig
from aerobee.protocol.ids import UniqueIds
from aerobee.protocol.plain_acl import Perm, parse_plain_acl
from aerobee.protocol.recall_handle import Handle, parse_handle, recall_handle
from aerobee.protocol.transaction_id import TransactionId
from aerobee.protocol.versions import version_text


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (-5, ""),
        (0, ""),
        (1, "1 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (12_599, "12.5 s"),
        (59_999, "59.9 s"),
        (60_000, "1 m 0 s"),
        (200_000, "3 m 20 s"),
        (3_599_999, "59 m 59 s"),
        (3_600_000, "1 h 0 m"),
        (7_500_000, "2 h 5 m"),
        (86_399_999, "23 h 59 m"),
        (86_400_000, "1 d 0 h"),
        (349_200_000, "4 d 1 h"),
    ],
)
def test_lengths_of_time_are_said_in_two_units_at_most(ms: int, words: str) -> None:
    assert in_words(ms) == words


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", 100_000),
        ("+30s", 130_000),
        ("-1.5m", 10_000),
        ("+2h", 7_300_000),
        ("+1d", 86_500_000),
        ("-250ms", 99_750),
        ("-2m", 0),
        ("30s", None),
        ("-30", None),
        ("+1w", None),
        ("+-1s", None),
        ("", None),
    ],
)
def test_a_time_may_be_written_as_its_distance_from_now_and_none_is_before_1970(
    text: str, moment: int | None
) -> None:
    assert relative(text, 100_000) == moment


@pytest.mark.parametrize("key", ["K", "KE", "KEY", "KEYS"])
def test_a_recall_handle_comes_back_with_or_without_its_padding(key: str) -> None:
    handle = recall_handle("orders", "broker-a", 1_699_999_999_999, key)
    assert base64.urlsafe_b64decode(handle) == f"v1 orders broker-a 1700000000000 {key}".encode()
    for text in (handle, handle.rstrip("=")):
        assert parse_handle(text) == Handle("orders", "broker-a", 1_700_000_000_000, key)


@pytest.mark.parametrize("text", ["v2 t b 5 k", "v1 t b x k", "v1 t b 5", "v1 t b 5 k more"])
def test_a_handle_that_is_none_is_refused_by_name(text: str) -> None:
    handle = base64.urlsafe_b64encode(text.encode()).decode()
    with pytest.raises(IllegalOperation, match=f"recall handle '{handle}' is invalid"):
        parse_handle(handle)
    with pytest.raises(ValueError, match="is invalid") as raised:
        parse_handle("\N{SNOWMAN}")
    assert isinstance(raised.value, IllegalOperation)


ACL = """\
globalWhiteRemoteAddresses:
- 10.0.0.*
- 192.168.1.1
accounts:
- accessKey: reader1
  secretKey: secret-1
  whiteRemoteAddress: 10.1.*.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
  - bills = SUB
  groupPerms:
  - g=SUB
- accessKey: keeper1
  secretKey: secret-2
  admin: true
- accessKey: reader1
  secretKey: another-one
"""


def test_a_plain_file_of_accounts_is_read_whole() -> None:
    found = parse_plain_acl(ACL)
    assert found.white_addresses == ("10.0.0.*", "192.168.1.1")
    reader, keeper = found.accounts
    assert (reader.access_key, reader.secret_key, reader.white_remote_address) == (
        "reader1",
        "secret-1",
        "10.1.*.*",
    )
    assert (reader.admin, keeper.admin) == (False, True)
    assert (reader.default_topic_perm, reader.default_group_perm) == ("DENY", "SUB")
    assert reader.topic_perms == {"orders": Perm.PUB | Perm.SUB, "bills": Perm.SUB}
    assert reader.group_perms == {"g": Perm.SUB}
    assert (keeper.access_key, keeper.secret_key, keeper.white_remote_address) == ("keeper1", "secret-2", "")
    assert (keeper.topic_perms, keeper.group_perms, keeper.default_topic_perm) == ({}, {}, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "accounts:\n- accessKey: short\n  secretKey: secret-1\n",
            "'short': accessKey and secretKey have at least",
        ),
        ("accounts:\n- accessKey: reader1\n  secretKey: sec\n", "accessKey and secretKey have at least"),
        ("accounts:\n- accessKey: reader1\n  secretKey: secret-1\n  admin: maybe\n", "admin is 'maybe'"),
        (
            "accounts:\n- accessKey: reader1\n  secretKey: secret-1\n  topicPerms:\n  - orders\n",
            "'orders' is not name=PERM",
        ),
        (
            "accounts:\n- accessKey: reader1\n  secretKey: secret-1\n  topicPerms:\n  - =SUB\n",
            "'=SUB' is not name=PERM",
        ),
        (
            "accounts:\n- accessKey: reader1\n  secretKey: secret-1\n  whiteRemoteAddress: 10.x.0.1\n",
            "10.x.0.1",
        ),
        ("globalWhiteRemoteAddresses:\n- nonsense\n", "nonsense"),
        ("acounts:\n- accessKey: reader1\n", "acounts"),
        ("globalWhiteRemoteAddresses: 10.0.0.1\n", "^globalWhiteRemoteAddresses is not a list$"),
        (
            "globalWhiteRemoteAddresses:\n- [10.0.0.1]\n",
            "^globalWhiteRemoteAddresses is not a list of texts$",
        ),
        ("accounts: reader1\n", "^accounts is not a list$"),
        ("accounts:\n- reader1\n", "^an account is not of the form"),
        ("reader1\n", "^the file is not of the form"),
        ("accounts:\n- accessKey: [a]\n", "^accessKey is not one text$"),
    ],
)
def test_what_is_wrong_in_a_plain_file_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_plain_acl(text)


@pytest.mark.parametrize(
    ("pattern", "there", "not_there"),
    [
        ("fe80::1", ["fe80::1"], ["fe80::2", "10.0.0.1"]),
        ("fe80::*", ["fe80::1", "fe80::ffff"], ["fe80::1:1", "fe81::1"]),
        ("fe80:0:0:0:0:0:1-5:*", ["fe80::1:7", "fe80::5:0"], ["fe80::6:0", "fe80::0:1"]),
        ("10.0.*.*", ["10.0.1.2"], ["10.1.0.0", "::1"]),
        ("10.0.0.1-3", ["10.0.0.1", "10.0.0.3"], ["10.0.0.0", "10.0.0.4"]),
    ],
)
def test_addresses_fit_their_pattern(pattern: str, there: list[str], not_there: list[str]) -> None:
    matches = parse_pattern(pattern)
    assert all(matches(ip_address(each)) for each in there)
    assert not any(matches(ip_address(each)) for each in not_there)


def test_a_count_may_not_pass_what_is_left() -> None:
    """From a peer: a count that is believed is memory that is asked for."""
    good = _Reader((2).to_bytes(4, "big") + b"ab" + (1).to_bytes(4, "big") + b"c")
    assert (good.sized(), good.sized()) == (b"ab", b"c")
    late = _Reader((2).to_bytes(4, "big") + b"ab" + (6).to_bytes(4, "big"))
    late.sized()
    with pytest.raises(ProtocolError, match="count 6 at 6 of 10"):
        late.count()
    for data, said in (
        (b"\xff\xff\xff\xff", "count -1"),
        (b"\0\0", "registration"),
        (b"\0\0\0\x04abc", "passes the end"),
    ):
        with pytest.raises(ProtocolError, match=said):
            _Reader(data).sized()


@pytest.mark.parametrize("cut", range(1, 12))
def test_frames_come_whole_wherever_they_are_cut(cut: int) -> None:
    data = b"".join(len(body).to_bytes(4, "big") + body for body in (b"abcd", b"12345678", b"wxyz"))
    frames = FrameDecoder()
    found: list[bytes] = []
    for at in range(0, len(data), cut):
        found += [bytes(each) for each in frames.feed(data[at : at + cut])]
    assert found == [b"abcd", b"12345678", b"wxyz"]


def test_ids_of_one_month_have_one_salt_and_those_of_the_next_another() -> None:
    clock = ManualClock()
    clock.set_wall(1_735_689_599_000)  # a second before the end of 2024
    ids = UniqueIds(b"\x7f\0\0\x01", 7, clock)
    first, second = ids.next(), ids.next()
    clock.set_wall(1_735_689_600_000)
    third = ids.next()
    salts = [int(each[12:20], 16) for each in (first, second, third)]
    assert salts[0] == salts[1]
    assert salts[2] == (salts[0] + 1) & 0xFFFFFFFF
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (211, "211"),
        (212, "V4_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (251, "V4_1_9"),
        (399, "V4_9_3"),
        (411, "V4_9_9"),
        (412, "V5_0_0_SNAPSHOT"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
    ],
)
def test_a_version_has_its_name(number: int, text: str) -> None:
    assert version_text(number) == text


def test_a_transaction_id_finds_its_half_message_again() -> None:
    given = TransactionId(7, 4_096, "AC11-00-01")
    assert given.text == "7-4096-AC11-00-01"
    assert TransactionId.parse(given.text) == given
    assert TransactionId.parse("0-0-K") == TransactionId(0, 0, "K")


@pytest.mark.parametrize("text", ["", "7", "7-8", "7-8-", "x-8-K", "7-x-K", "-7-8-K", "7--8-K"])
def test_what_no_broker_of_ours_gave_is_no_transaction_id(text: str) -> None:
    assert TransactionId.parse(text) is None


def test_a_static_topic_is_registered_by_the_queues_that_take_its_messages_now() -> None:
    mapping = QueueMapping(
        bname="a",
        epoch=9,
        scope="east",
        topic="T",
        total_queues=5,
        hosted_queues={
            0: [MappedPart(bname="a", queue_id=4), MappedPart(bname="a", queue_id=7)],
            1: [],
            2: [MappedPart(bname="a", queue_id=2)],
        },
    )
    assert mapping.info() == QueueMappingInfo(
        bname="a", curr_id_map={0: 7, 2: 2}, epoch=9, scope="east", topic="T", total_queues=5
    )


def test_secrets_are_not_shown() -> None:
    shown = [
        repr(UserInfo(username="ann", password="secret-1")),
        repr(PlainAccessConfig(access_key="ann-key", secret_key="secret-1")),
        repr(UpdateAclConfig(access_key="ann-key", secret_key="secret-1")),
    ]
    assert all("ann" in each and "secret-1" not in each for each in shown)
