# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol import command as wire
from aerobee.protocol.codes import LANGUAGES, VERSION
from aerobee.protocol.command import Command, Header
from aerobee.protocol.headers.consume import PopMessage, PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.route import GetRoute

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">I", kind << 24 | len(header)) + header + body


def json_frame(body: bytes = b"", **members: object) -> bytes:
    return framed(json.dumps(members).encode(), body)


commands = st.builds(
    Command,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=ints,
    flag=st.integers(0, 3),
    version=st.integers(0, 2**15 - 1),
    language=st.sampled_from(LANGUAGES),
    remark=st.none() | words,
    ext=st.dictionaries(words, words, max_size=5),
    body=st.binary(max_size=50),
    serialize=st.sampled_from([0, 1]),
)


@pytest.mark.slow
@given(commands)
@settings(deadline=None)
def test_a_command_survives_either_header_form(sent: Command) -> None:
    frame = wire.encode(sent)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    found = wire.decode(frame[4:])
    assert found.ext_dict() == sent.ext
    assert msgspec.structs.replace(found, ext=sent.ext) == sent
    assert wire.decode(memoryview(frame)[4:]).body == sent.body


def test_the_json_header_has_javas_text() -> None:
    frame = wire.encode(Command(105, 7, language="JAVA", ext={"topic": "T"}))
    expected = (
        b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}'
    )
    assert frame[8:] == expected
    assert frame[:8] == struct.pack(">II", 4 + len(expected), len(expected))


def test_without_fields_and_remark_their_members_are_absent() -> None:
    head = json.loads(wire.encode(Command(0))[8:])
    assert "extFields" not in head
    assert "remark" not in head
    assert head["version"] == VERSION


def test_the_example_of_a_123_byte_header_starts_as_documented() -> None:
    padding = 123 - len(wire.encode(Command(105, language="GO", ext={"topic": ""}))) + 8
    frame = wire.encode(Command(105, language="GO", ext={"topic": "T" * padding}))
    assert frame[:8].hex() == "0000007f0000007b"


def test_a_binary_header_has_javas_layout() -> None:
    frame = wire.encode(Command(105, 7, 0, 479, "JAVA", "no", {"k": "v"}, b"body", serialize=1))
    header = bytes.fromhex("0069 00 01df 00000007 00000000 00000002") + b"no" + bytes.fromhex("00000008")
    header += b"\0\1k\0\0\0\1v"
    assert frame == struct.pack(">II", 4 + len(header) + 4, 1 << 24 | len(header)) + header + b"body"


def test_codes_above_16_bits_do_not_survive_the_binary_header_as_in_java() -> None:
    assert wire.decode(wire.encode(Command(200050, serialize=1))[4:]).code == 3442
    assert wire.decode(wire.encode(Command(200151, serialize=1))[4:]).code == 3543


def test_empty_binary_values_are_absent() -> None:
    sent = Command(1, ext={"a": "", "b": "x"}, serialize=1)
    assert wire.decode(wire.encode(sent)[4:]).ext_dict() == {"b": "x"}


# -- fields -------------------------------------------------------------------------------------------


def test_text_becomes_numbers_and_booleans() -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "32", "order": "true"}
    found = wire.decode(json_frame(code=200050, extFields=fields)).fields(PopMessage)
    assert (found.queue_id, found.max_msg_nums, found.order) == (-1, 32, True)


def test_raw_json_values_of_ali_ons_are_accepted() -> None:
    fields = {"a": "p", "b": "T", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "k": False, "i": None, "j": 0}
    found = wire.decode(json_frame(code=310, extFields=fields)).fields(SendMessageV2)
    assert (found.default_topic_queue_nums, found.unit_mode, found.properties) == (4, False, None)


def test_a_number_where_text_is_declared_is_its_text() -> None:
    found = wire.decode(json_frame(code=105, extFields={"topic": 17})).fields(GetRoute)
    assert found.topic == "17"
    nested = wire.decode(json_frame(code=105, extFields={"topic": {"a": [1.5]}})).fields(GetRoute)
    assert nested.topic == '{"a":[1.5]}'


@pytest.mark.parametrize("written", ["TRUE", "True", "true", True])
def test_true_is_read_in_any_case(written: object) -> None:
    fields = {"topic": "T", "acceptStandardJsonOnly": written}
    assert (
        wire.decode(json_frame(code=105, extFields=fields)).fields(GetRoute).accept_standard_json_only is True
    )
    if isinstance(written, str):
        assert wire.convert_fields({"topic": "T", "acceptStandardJsonOnly": written}, GetRoute)


def test_blank_text_for_a_number_counts_as_absent() -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "1", "queueOffset": "5", "maxMsgBytes": ""}
    assert wire.decode(json_frame(code=11, extFields=fields)).fields(PullMessage).max_msg_bytes is None


def test_unknown_fields_are_ignored_and_missing_ones_named() -> None:
    command = wire.decode(json_frame(code=11, extFields={"consumerGroup": "g", "nobody": "knows"}))
    with pytest.raises(ProtocolError, match=r"PullMessage.*topic"):
        command.fields(PullMessage)


def test_null_members_are_absent() -> None:
    command = wire.decode(json_frame(code=34, extFields=None, remark=None, language=None))
    assert command.ext_dict() == {}
    assert command.remark is None
    with pytest.raises(ProtocolError):
        command.fields(GetRoute)


def test_an_unknown_language_is_kept_and_a_number_is_other() -> None:
    assert wire.decode(json_frame(code=1, language="KOBOL")).language == "KOBOL"
    assert wire.decode(json_frame(code=1, language=5)).language == "OTHER"


def test_control_characters_and_a_newline_after_the_header_are_read_as_java_does() -> None:
    header = b'{ "code":310, "extFields":{"b":"T","i":"KEYS\x01k\x02","d":4,"k":false},"opaque":7}\n'
    command = wire.decode(framed(header, b"body"))
    assert (command.code, command.opaque, command.body) == (310, 7, b"body")
    found = command.fields(SendMessageV2)
    assert (found.properties, found.default_topic_queue_nums) == ("KEYS\x01k\x02", 4)


def test_escaped_control_characters_are_what_we_send() -> None:
    frame = wire.encode(wire.request(SendMessageV2(topic="T", properties="KEYS\x01k\x02")))
    assert b"KEYS\\u0001k\\u0002" in frame


def test_none_is_left_out_and_defaults_are_not() -> None:
    fields = wire.header_fields(SendMessageV2(topic="T", unit_mode=False))
    assert fields["k"] == "false"
    assert fields["d"] == "4"
    assert "i" not in fields
    assert wire.header_fields(None) == {}


def test_every_value_sent_is_text_for_gos_sake() -> None:
    frame = wire.encode(wire.request(PullMessage(consumer_group="g", topic="T", queue_id=1, queue_offset=2)))
    assert all(isinstance(value, str) for value in json.loads(frame[8:])["extFields"].values())


def test_one_way_requests_say_so() -> None:
    assert wire.request(GetRoute(topic="T"), one_way=True).is_one_way
    assert not wire.request(GetRoute(topic="T")).is_one_way
    assert wire.decode(json_frame(code=0, flag=1)).is_response


# -- what is no command -------------------------------------------------------------------------------

BAD_FRAMES = {
    "empty": b"",
    "shorter than the header length": b"\0\0",
    "header passes the end": framed(b"{}")[:-1],
    "huge header length": b"\0\xff\xff\xff{}",
    "unknown serialize type": framed(b"{}", kind=9),
    "no JSON": framed(b"\xde\xad\xbe\xef"),
    "an array": framed(b"[]"),
    "no code": framed(b"{}"),
    "code is text": framed(b'{"code":"x"}'),
    "code is an object": framed(b'{"code":{}}'),
    "ext fields are a list": framed(b'{"code":1,"extFields":[1]}\x01'),
    "bad UTF-8": framed(b'{"code":1,"remark":"\xff"}'),
    "deep": framed(b'{"code":1,"remark":' + b"[" * 100_000 + b"}"),
    "binary, too short": framed(b"\0" * 20, kind=1),
    "binary, negative remark": framed(struct.pack(">hBhiii", 1, 0, 0, 0, 0, -5) + b"\0" * 9, kind=1),
    "binary, huge remark": framed(struct.pack(">hBhiii", 1, 0, 0, 0, 0, 2**31 - 1), kind=1),
    "binary, huge fields": framed(struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 2**31 - 1), kind=1),
    "binary, huge value": framed(
        struct.pack(">hBhiiiih", 1, 0, 0, 0, 0, 0, 8, 1) + b"k\x7f\xff\xff\xff", kind=1
    ),
    "binary, bad UTF-8": framed(struct.pack(">hBhiii", 1, 0, 0, 0, 0, 1) + b"\xff\0\0\0\0", kind=1),
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_what_is_no_command_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(frame)


@pytest.mark.parametrize("ext", ["[1]", '"x"', "5", '{"topic":', '{"topic":"\\ud800"}'])
def test_fields_that_are_no_object_are_a_protocol_error(ext: str) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(framed(b'{"code":1,"extFields":%b}' % ext.encode())).fields(GetRoute)


class Strange(Header):
    number: int
    switch: bool
    word: str


@given(st.binary(max_size=120), st.sampled_from([0, 1]))
@settings(deadline=None, max_examples=300)
def test_a_garbage_header_is_a_protocol_error_or_a_command(data: bytes, kind: int) -> None:
    with contextlib.suppress(ProtocolError):
        wire.decode(framed(data, kind=kind)).fields(Strange)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


MEMBERS = ["code", "flag", "opaque", "version", "language", "remark", "x"]
FIELDS = ["number", "switch", "word", "x"]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(MEMBERS), values), st.dictionaries(st.sampled_from(FIELDS), values))
@settings(deadline=None, max_examples=150)
def test_members_of_wrong_types_are_a_protocol_error_or_converted(
    members: dict[str, Any], ext: dict[str, object]
) -> None:
    try:
        found = wire.decode(json_frame(**members, extFields=ext)).fields(Strange)
    except ProtocolError:
        return
    assert (type(found.number), type(found.switch), type(found.word)) == (int, bool, str)


@pytest.mark.slow
@given(commands, st.data())
@settings(deadline=None, max_examples=200)
def test_a_damaged_frame_is_a_protocol_error_or_another_command(sent: Command, data: st.DataObject) -> None:
    frame = bytearray(wire.encode(sent)[4:])
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    for damaged in (bytes(frame), bytes(frame[:cut])):
        try:
            wire.decode(damaged).ext_dict()
        except ProtocolError:
            continue


def binary(
    remark: tuple[int, bytes], name: tuple[int, bytes], value: tuple[int, bytes], more: int = 0
) -> bytes:
    """Lengths as claimed beside the bytes there are; the fields claim their true size, and `more`."""
    fields = struct.pack(">h", name[0]) + name[1] + struct.pack(">i", value[0]) + value[1]
    head = struct.pack(">hBhiii", 1, 0, 0, 0, 0, remark[0]) + remark[1]
    return framed(head + struct.pack(">i", len(fields) + more) + fields, kind=1)


def test_binary_texts_end_where_they_say_and_never_past_the_header() -> None:
    found = wire.decode(binary((2, b"no"), (1, b"k"), (3, b"abc")))
    assert (found.remark, found.ext_dict()) == ("no", {"k": "abc"})
    for size in (4, 5, 2**31 - 1, -1, -(2**31)):
        with pytest.raises(ProtocolError, match="binary header: text of"):
            wire.decode(binary((2, b"no"), (1, b"k"), (size, b"abc")))
    for size in (30_000, -1, -(2**15)):
        with pytest.raises(ProtocolError, match="binary header: text of"):
            wire.decode(binary((2, b"no"), (size, b"k"), (3, b"abc")))
    with pytest.raises(ProtocolError, match="fields end at 41, header has 40 bytes"):
        wire.decode(binary((2, b"no"), (1, b"k"), (10, b"abcdefghij"), more=1))


def test_a_header_may_be_as_long_as_is_allowed() -> None:
    frame = json_frame(code=1, remark="x" * 50)
    size = len(frame) - 4
    assert wire.decode(frame, size).remark == "x" * 50
    with pytest.raises(ProtocolError, match=f"header of {size} bytes, limit {size - 1}"):
        wire.decode(frame, size - 1)


@pytest.mark.parametrize(
    ("number", "name"), [(0, "JAVA"), (3, "PYTHON"), (len(LANGUAGES) - 1, LANGUAGES[-1])]
)
def test_a_language_is_its_place_in_the_list(number: int, name: str) -> None:
    head = struct.pack(">hBhiiii", 1, number, 0, 0, 0, 0, 0)
    assert wire.decode(framed(head, kind=1)).language == name
    assert wire.encode(Command(1, language=name, serialize=1))[10] == number
    assert (
        wire.decode(framed(struct.pack(">hBhiiii", 1, len(LANGUAGES), 0, 0, 0, 0, 0), kind=1)).language
        == "OTHER"
    )
    assert wire.encode(Command(1, language="KOBOL", serialize=1))[10] == LANGUAGES.index("OTHER")


def test_what_a_frame_leaves_out_has_javas_defaults() -> None:
    for frame in (framed(b'{"code":5}'), framed(b'{"code":5,"remark":7}')):  # strictly, and as Java reads it
        found = wire.decode(frame)
        assert (found.code, found.opaque, found.flag, found.version, found.language) == (5, 0, 0, 0, "OTHER")
        assert (found.ext_dict(), found.body, found.serialize) == ({}, b"", 0)
    assert wire.decode(framed(b'{"code":5,"remark":7}')).remark == "7"


def test_an_answer_has_its_fields_even_when_there_are_none() -> None:
    for ext in ({}, wire.Command(1).ext):
        assert b'"extFields":{}' in wire.encode(Command(0, flag=wire.RESPONSE, ext=ext))
        assert b"extFields" not in wire.encode(Command(0, ext=ext))


def test_fields_that_are_null_or_numbers_are_read_as_java_does() -> None:
    head = b'{"code":1,"extFields":{"a":null,"b":5,"c":true,"d":[1],"e":"x"},"opaque":3}'
    found = wire.decode(len(head).to_bytes(4, "big") + head)
    assert found.ext_dict() == {"b": "5", "c": "true", "d": "[1]", "e": "x"}
