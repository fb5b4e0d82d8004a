# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters at their edges: tokens and their columns, every hint, limits met exactly, numbers by Java's types."""

from __future__ import annotations

import pytest

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters.sql_eval import compile_sql
from aerobee.protocol.filters.sql_lexer import MAX_LENGTH, tokens
from aerobee.protocol.filters.sql_parser import MAX_DEPTH


def refusal(text: str) -> str:
    with pytest.raises(SubscriptionParseFailed) as refused:
        compile_sql(text)
    return refused.value.remark.removeprefix("SQL92 filter, ")


# -- tokens ------------------------------------------------------------------------------------------------


def test_every_sign_is_a_token_of_its_own_kind_at_its_column() -> None:
    signs = ["<>", "<=", ">=", "=", "<", "(", ">", ")", ",", "+", "-"]
    found = tokens(" ".join(signs))
    assert [token.kind for token in found] == [*signs, "end"]
    assert [token.at for token in found] == [1, 4, 7, 10, 12, 14, 16, 18, 20, 22, 24, 25]
    assert [token.kind for token in tokens("".join(signs))] == [*signs, "end"], "without spaces too"


KEYWORDS = "AND OR NOT BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_is_one_in_any_case_and_only_alone(word: str) -> None:
    for written in (word, word.lower(), word.title()):
        assert tokens(written)[0] == (word, written, 1)
    for longer in (f"{word}_", f"{word}1", f"${word}", f"x{word}"):
        assert tokens(longer)[0] == ("name", longer, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("5", 5),
        ("5L", 5),
        ("5l", 5),
        ("9223372036854775807", 2**63 - 1),
        ("5.", 5.0),
        (".5", 0.5),
        ("5.25", 5.25),
        ("5e3", 5000.0),
        ("5E+3", 5000.0),
        ("5e-1", 0.5),
        ("0.5E1", 5.0),
    ],
)
def test_numbers_are_read_with_their_type(text: str, value: float) -> None:
    kind, found, _ = tokens(text)[0]
    assert (kind, found, type(found)) == ("number", value, type(value))


def test_text_loses_its_quotes_and_halves_those_within() -> None:
    assert [token.value for token in tokens("'a' '' '''' 'it''s' 'a\nb'")] == [
        "a",
        "",
        "'",
        "it's",
        "a\nb",
        "",
    ]


def test_white_space_and_comments_are_between_tokens() -> None:
    text = "a\t\n\r\f =--rest ' of line\n1/* any ' \n thing */AND/**/b"
    assert [token.value for token in tokens(text)] == ["a", "=", 1, "AND", "b", ""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a != 5", "column 3: cannot read '!= 5': write <> for 'not equal'"),
        ('a = "x"', "column 5: cannot read '\"x\"': write text in single quotes"),
        ("a = 'x", "column 5: cannot read \"'x\": the text is not closed; a quote inside text is written ''"),
        ("a & b", "column 3: cannot read '& b': write AND"),
        ("a | b", "column 3: cannot read '| b': write OR"),
        ("a /* b", "column 3: cannot read '/* b': the comment is not closed"),
        ("a * 2 = 4", "column 3: cannot read '* 2 = 4': there is no arithmetic"),
        ("a / 2 = 4", "column 3: cannot read '/ 2 = 4': there is no arithmetic"),
        ("a % 2", "column 3: cannot read '% 2': there is no LIKE; use CONTAINS, STARTSWITH or ENDSWITH"),
        ("a = 007 ", "column 5: cannot read the number '007': write 5, 5.5 or 5E3, without leading zeros"),
        (
            "a = 5x and b = 123456",
            "column 5: cannot read the number '5x': write 5, 5.5 or 5E3, without leading zeros",
        ),
        ("a = ..5", "column 5: cannot read the number '..5': write 5, 5.5 or 5E3, without leading zeros"),
        (
            "a = 0" + "1" * 30,
            f"column 5: cannot read the number '0{'1' * 19}': write 5, 5.5 or 5E3, without leading zeros",
        ),
        ("a#b = 1 AND c", "column 2: cannot read '#b = 1 AND': property names are letters, digits, _ and $"),
    ],
)
def test_what_cannot_be_read_is_shown_with_what_to_write(text: str, said: str) -> None:
    assert refusal(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "column 1: the filter is empty; use the tag filter * to take everything"),
        ("a =", "column 4: expected a property, a value or (, found the end"),
        ("a = )", "column 5: expected a property, a value or (, found )"),
        ("a 'x'", "column 3: expected AND, OR, a comparison or the end, found 'x'"),
        ("a b", "column 3: expected AND, OR, a comparison or the end, found 'b'"),
        ("a 5", "column 3: expected AND, OR, a comparison or the end, found 5"),
        (
            "a Like 'x'",
            "column 3: expected AND, OR, a comparison or the end, found 'Like'; there is no LIKE, use CONTAINS",
        ),
        ("a IS 5", "column 6: expected NULL, found 5"),
        ("a IS NOT 5", "column 10: expected NULL, found 5"),
        ("a IN 'x'", "column 6: expected ( after IN, found 'x'"),
        ("a IN ()", "column 7: expected text in single quotes, found )"),
        ("a IN ('x',)", "column 11: expected text in single quotes, found )"),
        ("a IN ('x' 'y')", "column 11: expected , or ), found 'y'"),
        ("a CONTAINS b", "column 12: expected text in single quotes, found 'b'"),
        ("a BETWEEN 1 OR 2", "column 13: expected AND between the two bounds, found OR"),
        ("(a = 1", "column 7: expected ), found the end"),
        ("a = NULL", "column 5: NULL equals nothing: write IS NULL or IS NOT NULL"),
        ("NULL <> a", "column 1: NULL equals nothing: write IS NULL or IS NOT NULL"),
        ("TRUE = 5", "column 6: True cannot be compared with 5"),
        ("FALSE = 'x'", "column 7: False cannot be compared with 'x'"),
        ("a > NULL", "column 5: NULL has no order: <, <=, >, >= and BETWEEN compare numbers"),
        ("TRUE > a", "column 1: True has no order: <, <=, >, >= and BETWEEN compare numbers"),
        ("(a = 1) > 5", "column 4: a condition has no order: <, <=, >, >= and BETWEEN compare numbers"),
        ("5 > (a = 1)", "column 8: a condition has no order: <, <=, >, >= and BETWEEN compare numbers"),
        ("a BETWEEN 5 AND 1", "column 17: BETWEEN 5 AND 1 is empty: write the smaller bound first"),
        ("a = 1 AND 5", "column 11: expected a condition that is true or false, found a plain value"),
        ("'x' OR a = 1", "column 1: expected a condition that is true or false, found a plain value"),
        ("NOT 5", "column 5: expected a condition that is true or false, found a plain value"),
        ("'x' IN ('x')", "column 1: IN wants a property name on its left"),
        ("a = 9223372036854775808", "column 5: 9223372036854775808 is outside the 64-bit integers"),
        ("a = 1E309", "column 5: 1E309 is outside the 64-bit decimals"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(text: str, said: str) -> None:
    assert refusal(text) == said


# -- limits ------------------------------------------------------------------------------------------------


def test_a_filter_may_be_as_long_as_the_limit_and_no_longer() -> None:
    text = "a = '" + "x" * (MAX_LENGTH - 6) + "'"
    assert len(text) == MAX_LENGTH
    assert compile_sql(text)({"a": "x" * (MAX_LENGTH - 6)})
    assert refusal(text + " ") == "column 32768: the filter has 32769 characters, limit 32768"


NESTED = {
    "brackets": lambda deep: "(" * deep + "a = 1" + ")" * deep,
    "NOT": lambda deep: "NOT " * deep + "(a = 1)" if deep else "",
    "signs": lambda deep: "a = " + "+" * deep + "1",
    "minus": lambda deep: "a > " + "- " * deep + "1",
    "equalities": lambda deep: "a = 1" + " = TRUE" * deep,
    "null tests": lambda deep: "a IS NULL" + " IS NULL" * deep,
    "text tests": lambda deep: "a CONTAINS 'x'" + " CONTAINS 'x'" * deep,
}


@pytest.mark.parametrize("kind", NESTED)
def test_nesting_may_be_as_deep_as_the_limit_and_no_deeper(kind: str) -> None:
    inner = 1 if kind == "NOT" else 0  # its own brackets
    compile_sql(NESTED[kind](MAX_DEPTH - inner))
    assert refusal(NESTED[kind](MAX_DEPTH - inner + 1)).endswith(": nested deeper than 32")


def test_what_is_closed_no_longer_counts_as_deep() -> None:
    for one in ("(a = 1)", "NOT (a = 2)", "a = +1", "a = 1"):
        assert compile_sql(" AND ".join([one] * 40))({"a": "1"}), one
    assert compile_sql("(((a = 1))) AND " + "(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH)({"a": "1"})


# -- numbers, by Java's types --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taken", "left"),
    [
        # 32 bits against a 32-bit constant, in either fast or general form
        ("a > 5", ["6", "+6", "2147483647", "0000000006"], ["5", "-6", "2147483648", "6.0", " 6", "6L", "", "²"]),
        ("5 < a", ["6", "2147483647"], ["5", "2147483648", "6.0"]),
        ("a < 5", ["4", "-1", "-2147483648"], ["5", "-2147483649", "x"]),
        ("a < 2147483647", ["2147483646"], ["2147483647", "2147483648"]),
        ("a = 2147483647", ["2147483647"], ["2147483648", "2147483646"]),
        # one more, and it is 64 bits wide
        ("a <= 2147483648", ["2147483648", "-2147483649", "-9223372036854775808"], ["2147483649"]),
        ("a >= 2147483648", ["9223372036854775807"], ["9223372036854775808", "2147483647"]),
        # a negative constant has the type of the positive one
        ("a >= -2147483647", ["-2147483647", "2147483647"], ["-2147483648", "2147483648"]),
        ("a >= -2147483648", ["-2147483648", "2147483648"], ["-2147483649"]),
        ("a = - -5", ["5"], ["-5"]),
        ("a = -5", ["-5"], ["5"]),
        ("-5 = a", ["-5"], ["5"]),
        ("-5 < a", ["-4"], ["-5", "-6", "x"]),
        ("-5 >= a", ["-5", "-6"], ["-4"]),
        ("a = +5", ["5"], ["-5", "6"]),
        # decimals
        ("a >= 5.5", ["5.5", "6", "5.5f", "5.5D", " 5.5\t", "55e-1", "+5.5", "1E2"], ["5.4", "0x6", "5,5", "f"]),
        ("a >= 0.5", [".5", "5."], [".", "", "e5", "5.5.5", "5ff"]),
        ("a < 0.5", ["-.5", "-5.d"], ["inf", "-inf", "nan", "--5"]),
        ("a = 5.0", ["5", "5.0", "5e0"], ["5.1"]),
        # two properties: decimals to order them, text for equality
        ("a >= a", ["5", "5.5"], ["x", ""]),
        ("a = a", ["x", "5"], []),
        ("a <> a", [], ["x", "5"]),
        # between
        ("a BETWEEN 1 AND 3", ["1", "2", "3"], ["0", "4", "x"]),
        ("a BETWEEN 3 AND 3", ["3"], ["2", "4"]),
        ("a NOT BETWEEN 1 AND 3", ["0", "4"], ["1", "2", "3", "x"]),
        ("a NOT BETWEEN 3 AND 1", ["2", "3", "1", "0"], ["x"]),
        ("2 BETWEEN 1 AND a", ["2", "3"], ["1"]),
        ("a BETWEEN -3 AND -1", ["-3", "-2", "-1"], ["-4", "0"]),
        # constants beside each other
        ("1 = 1 AND a = 1", ["1"], ["2"]),
        ("1 = 1.0 AND a = 1", ["1"], []),
        ("1 = 2 OR a = 1", ["1"], ["2"]),
        ("1 < 2 AND 2 > 1 AND 1 <= 1 AND 1 >= 1 AND a = 1", ["1"], ["2"]),
        ("2 < 1 OR 1 > 1 OR a = 1", ["1"], ["2"]),
        ("'5' = 5 AND a = 1", ["1"], ["2"]),
        ("5 = '5' AND a = 1", ["1"], ["2"]),
        ("'x' = 'x' AND a = 1", ["1"], ["2"]),
        ("'x' = 'y' OR a = 1", ["1"], ["2"]),
        ("5 = 'x' OR a = 1", [], ["1"]),  # read as a number and cannot be
        ("5 = TRUE OR a = 1", ["1"], ["2"]),
        ("(a = 1) = 5 OR a = 2", ["2"], ["1"]),
        # truth values
        ("a = TRUE", ["true", "TRUE", "tRuE"], ["yes", "1", "false"]),
        ("a = FALSE", ["false", "yes", "1"], ["true", "True"]),
        ("a <> TRUE", ["no"], ["true"]),
        ("(a = 1) = TRUE", ["1"], ["2"]),
        ("(a = 1) = FALSE", ["2"], ["1"]),
        ("(a = 1) <> (a = 2)", ["1", "2"], ["3"]),
        ("TRUE = TRUE AND a = 1", ["1"], ["2"]),
        ("TRUE = a", [], ["true", "false"]),
        ("a = '1' AND a", [], ["1", "true"]),
        ("a = '1' OR a", ["1"], ["true"]),
        ("NOT a", ["true", "1"], []),
        ("FALSE OR a = 1", ["1"], ["2"]),
        # NULL
        ("b IS NULL AND a = 1", ["1"], ["2"]),
        ("b IS NOT NULL OR a = 1", ["1"], ["2"]),
        ("a IS NOT NULL", ["", "x"], []),
        ("b = b AND a = 1", ["1"], ["2"]),
        ("a = b", [], ["1"]),
        ("b = a", [], ["1"]),
        ("a <> b", ["1"], []),  # NULL on the right of = is false
        ("b <> a", [], ["1"]),  # on the left unknown
        ("(b = 1) IS NULL", ["1"], []),
        ("(b > 1) IS NULL AND (1 > b) IS NULL AND (a > b) IS NULL AND (b > a) IS NULL", ["1"], []),
        ("(b IN ('x')) IS NULL AND (b NOT IN ('x')) IS NULL", ["1"], []),
        ("(b CONTAINS 'x') IS NOT NULL AND NOT (b NOT CONTAINS 'x')", ["1"], []),
        ("(NULL AND a = 1) IS NULL", ["1"], ["2"]),
        ("(a = 1 AND NULL) IS NULL", ["1"], ["2"]),
        ("(NULL OR a = 1) IS NULL", ["2"], ["1"]),
        ("(NOT NULL) IS NULL", ["1"], []),
        ("-a IS NULL AND -'x' IS NULL AND -(1 = 1) IS NULL", ["1"], []),
        # text
        ("a CONTAINS 'b'", ["b", "abc"], ["ac", "B"]),
        ("a STARTSWITH 'b'", ["b", "bc"], ["ab"]),
        ("a ENDSWITH 'b'", ["b", "ab"], ["bc"]),
        ("a NOT CONTAINS 'b'", ["ac"], ["abc"]),
        ("a NOT STARTSWITH 'b'", ["ab"], ["bc"]),
        ("a NOT ENDSWITH 'b'", ["bc"], ["ab"]),
        ("a CONTAINS '' OR a NOT CONTAINS ''", [], ["", "x"]),
        ("'abc' CONTAINS 'b' AND a = 1", ["1"], ["2"]),
        ("5 CONTAINS '5' OR a = 1", ["1"], ["5"]),
        ("a IN ('x', 'y')", ["x", "y"], ["z", ""]),
        ("a NOT IN ('x', 'y')", ["z", ""], ["x", "y"]),
    ],
)  # fmt: skip
def test_what_a_property_is_compared_with_says_how_it_is_read(
    text: str, taken: list[str], left: list[str]
) -> None:
    matches = compile_sql(text)
    assert [value for value in [*taken, *left] if matches({"a": value})] == taken
