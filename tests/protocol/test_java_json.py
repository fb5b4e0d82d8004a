# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import tracemalloc
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol import java_json
from aerobee.protocol.java_json import Dialect, decode, encode, parse

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "RED"
    GREEN = "GREEN"


class Key(msgspec.Struct, rename="camel", frozen=True):
    a: int = 0
    b: str = ""


class Value(msgspec.Struct, rename="camel", kw_only=True):
    by_key: dict[Key, int] = {}
    by_number: dict[int, int] = {}
    colour: Colour = Colour.RED
    maybe: str | None = None
    names: list[str] = []
    number: int = 7
    texts: dict[int, str] = {}


# -- reading ------------------------------------------------------------------------------------------


@given(values)
@settings(deadline=None)
def test_standard_json_is_read_as_the_standard_library_reads_it(value: object) -> None:
    for written in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False)):
        assert parse(written.encode()) == value


def test_bare_integer_keys_are_read() -> None:
    assert parse(b'{0:"a", -1 : "b",\n2:{3:[{4:5}]}}') == {0: "a", -1: "b", 2: {3: [{4: 5}]}}


def test_object_keys_are_read_as_pairs() -> None:
    assert parse(b'{{"a":1,"b":"x"}:5,{"a":2}:{}}') == {(("a", 1), ("b", "x")): 5, (("a", 2),): {}}


@pytest.mark.parametrize("tail", [b"\n", b"\r\n", b"\0", b" \t", b"}garbage"])
def test_what_follows_the_first_value_is_not_looked_at(tail: bytes) -> None:
    assert decode(b'{"number":1,0:2}' + tail, Value).number == 1
    assert decode(b'{"number":1}' + tail, Value).number == 1


def test_control_characters_in_text_are_read() -> None:
    assert parse(b'"a\x01b\x02\tc"') == "a\x01b\x02\tc"


def test_unknown_missing_and_null_members() -> None:
    found = decode(b'{"nobody":{},"number":null,"names":[null,"x"],"byNumber":null,"maybe":null}', Value)
    assert found == Value(names=["x"])
    assert decode(b"{}", Value) == Value()


@pytest.mark.parametrize(
    ("written", "expected"),
    [('"GREEN"', Colour.GREEN), ('"Green"', Colour.GREEN), ("1", Colour.GREEN), ("0", Colour.RED)]
    + [(other, Colour.RED) for other in ('"blue"', "2", "-1", "true", "null", "[]", "1.5")],
)
def test_enumerations_are_read_by_name_in_any_case_and_by_ordinal(written: str, expected: Colour) -> None:
    """Java reads an unknown one as null: the default stands."""
    try:
        assert decode(b'{"colour":%b}' % written.encode(), Value).colour is expected
    except ProtocolError:
        assert written == "[]"


def test_numbers_become_text_and_text_numbers_where_declared() -> None:
    found = decode(b'{"maybe":5,"number":"6","names":[1,true,1.5]}', Value)
    assert found == Value(maybe="5", number=6, names=["1", "true", "1.5"])


@pytest.mark.parametrize(
    "key", [b'{"a":1,"b":"x"}', b'{"b":"x","a":"1","c":0}', b'"{\\"a\\":1,\\"b\\":\\"x\\"}"']
)
def test_an_object_key_is_read_bare_or_quoted(key: bytes) -> None:
    assert decode(b'{"byKey":{%b:3}}' % key, Value).by_key == {Key(1, "x"): 3}


BAD = {
    "nothing": b"",
    "blank": b"  ",
    "a word": b"nope",
    "cut object": b'{"number":1',
    "cut text": b'{"number',
    "no colon": b'{"number" 1}',
    "no comma": b'{"number":1 "maybe":2}',
    "open array": b"[1,2",
    "single quotes": b"{'number':1}",
    "a list as key": b"{[1]:2}",
    "a fraction as key": b"{1.5:2}",
    "an object key with an object": b'{{"a":{}}:1}',
    "bad UTF-8": b'{"maybe":"\xff"}',
    "bad escape": b'{"maybe":"\\x"}',
    "half a surrogate pair": b'{"maybe":"\\ud800"}',
    "NaN": b'{"number":NaN}',
    "a list": b"[1]",
    "text": b'"x"',
    "null": b"null",
    "wrong type": b'{"number":{}}',
    "wrong type, text": b'{"number":"x"}',
    "wrong item": b'{"names":{}}',
    "wrong key": b'{"byNumber":{"x":1}}',
    "wrong object key": b'{"byKey":{"x":1}}',
    "object key of wrong types": b'{"byKey":{{"a":"x"}:1}}',
    "deep": b"[" * 100_000,
    "deep objects": b'{"maybe":' * 100_000,
    "deep keys": b"{" * 100_000,
    "many digits": b'{"number":' + b"9" * 5000 + b"}",
    "a number too large": b'{"number":1e999}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data, Value)


@given(st.binary(max_size=60) | st.text('{}[]":,0123456789-ab \\u', max_size=40).map(str.encode))
@settings(deadline=None, max_examples=500)
@pytest.mark.slow
def test_random_bytes_are_a_protocol_error_or_a_value(data: bytes) -> None:
    for kind in (Value, dict[str, int], list[Key]):
        try:
            found = decode(data, kind)
        except ProtocolError:
            continue
        assert msgspec.to_builtins(found, str_keys=False) is not None


@given(values)
@settings(deadline=None, max_examples=200)
@pytest.mark.slow
def test_values_of_wrong_types_are_a_protocol_error_or_converted(value: object) -> None:
    for member in ("byKey", "byNumber", "colour", "maybe", "names", "number", "texts"):
        try:
            found = decode(json.dumps({member: value}).encode(), Value)
        except ProtocolError:
            continue
        assert decode(encode(found), Value) == found


def test_input_larger_than_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_json, "MAX_SIZE", 10)
    for read in (parse, lambda data: decode(data, Value)):
        with pytest.raises(ProtocolError, match="JSON of 11 bytes, limit 10"):
            read(b" " * 11)


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(ProtocolError, match="more than 1000 values"):
        parse(b"[" + b"[]," * 1000 + b"]", 1000)


@pytest.mark.parametrize("unit", [b"{},", b"[],", b"1,", b'"a":1,', b"1:1,", b'{"a":[1]},'])
def test_a_request_that_would_take_long_is_refused_unread(unit: bytes) -> None:
    body = b'{"x":[' + unit * (java_json.MAX_REQUEST_VALUES + 1) + b"1]}"
    for read in (java_json.parse_request, lambda data: java_json.decode_request(data, Value)):
        with pytest.raises(ProtocolError, match=r"JSON request of \d+ values, limit 60000; send several"):
            read(body)
    with pytest.raises(ProtocolError, match="JSON request of 4194305 bytes, limit 4194304"):
        java_json.parse_request(b" " * (4 * 1024 * 1024 + 1))


def test_a_request_in_javas_form_may_have_fewer_values() -> None:
    java = b'{"x":{' + b"1:1," * java_json.MAX_REQUEST_TOLERATED + b"1:1}}"
    with pytest.raises(ProtocolError, match="more than 20000 values"):
        java_json.decode_request(java, Value)
    assert java_json.parse_request(b'{"x":{1:1}}') == {"x": {1: 1}}


def test_standard_json_never_meets_the_tolerant_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_json, "_Parser", None)
    assert parse(b'{"mode":"POP","n":[1,2.5,null,{"a":"b"}]}') == {
        "mode": "POP",
        "n": [1, 2.5, None, {"a": "b"}],
    }


@pytest.mark.slow
def test_deep_input_takes_little_memory() -> None:
    data = b"[" * 2_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(data, Value)
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    finally:
        tracemalloc.stop()


# -- writing ------------------------------------------------------------------------------------------


def test_none_is_left_out_and_keys_are_bare() -> None:
    value = Value(by_key={Key(1, "x"): 2}, by_number={0: 5, -1: 6}, texts={0: 'a"b'})
    assert encode(value) == (
        b'{"byKey":{{"a":1,"b":"x"}:2},"byNumber":{0:5,-1:6},"colour":"RED","names":[],"number":7,'
        b'"texts":{0:"a\\"b"}}'
    )


def test_the_standard_dialect_is_standard() -> None:
    value = Value(by_key={Key(1, "x"): 2}, by_number={0: 5}, texts={0: "a"})
    written = json.loads(encode(value, Dialect.STANDARD))
    assert written["byNumber"] == {"0": 5}
    assert written["byKey"] == {'{"a":1,"b":"x"}': 2}
    assert decode(encode(value, Dialect.STANDARD), Value) == value


keys = st.builds(Key, a=st.integers(-(2**31), 2**31 - 1), b=text)
longs = st.integers(-(2**63), 2**63 - 1)
built = st.builds(
    Value,
    by_key=st.dictionaries(keys, longs, max_size=4),
    by_number=st.dictionaries(longs, longs, max_size=4),
    colour=st.sampled_from(Colour),
    maybe=st.none() | text,
    names=st.lists(text, max_size=3),
    number=longs,
    texts=st.dictionaries(longs, text, max_size=4),
)


@pytest.mark.slow
@given(built, st.sampled_from(Dialect))
@settings(deadline=None)
def test_what_is_written_is_read_back(value: Value, dialect: Dialect) -> None:
    assert decode(encode(value, dialect), Value) == value


def test_a_body_without_quirks_is_written_by_msgspec_alone() -> None:
    class Plain(msgspec.Struct):
        names: list[str]
        table: dict[str, int]

    encode(Plain(["x"], {"a": 1}))
    assert java_json._writers[Plain, Dialect.JAVA] is msgspec.json.encode


@pytest.mark.parametrize(("limit", "good"), [(9, False), (10, True)])
def test_a_text_may_be_as_long_as_the_limit(monkeypatch: pytest.MonkeyPatch, limit: int, good: bool) -> None:
    monkeypatch.setattr(java_json, "MAX_SIZE", limit)
    for read in (parse, lambda data: decode(data, dict[str, int])):
        if good:
            assert read(b'{"a":1234}') == {"a": 1234}
        else:
            with pytest.raises(ProtocolError, match="JSON of 10 bytes, limit 9"):
                read(b'{"a":1234}')


@pytest.mark.parametrize(("limit", "good"), [(9, False), (10, True)])
def test_a_request_may_be_as_long_as_its_own_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, good: bool
) -> None:
    monkeypatch.setattr(java_json, "MAX_REQUEST_SIZE", limit)
    for read in (java_json.parse_request, lambda data: java_json.decode_request(data, dict[str, int])):
        if good:
            assert read(b'{"a":1234}') == {"a": 1234}
        else:
            with pytest.raises(ProtocolError, match="JSON request of 10 bytes, limit 9; send several"):
                read(b'{"a":1234}')


def test_values_of_a_request_are_counted_by_the_signs_before_them() -> None:
    java_json.check_values(b'{"a":[1,2]}', 3)
    with pytest.raises(ProtocolError, match="JSON request of 3 values, limit 2; send several"):
        java_json.check_values(b'{"a":[1,2]}', 2)


def test_what_may_hold_too_many_values_is_not_read_as_a_whole_to_find_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(java_json, "MAX_VALUES", 4)
    assert java_json.parse(b"[1,1,1]", 4) == [1, 1, 1]
    assert java_json.parse(b"[1,1,1  ]", 4) == [1, 1, 1], "so long that it could hold more, and does not"
    with pytest.raises(ProtocolError, match="more than 4 values"):
        java_json.parse(b"[1,1,1,1]", 4)
