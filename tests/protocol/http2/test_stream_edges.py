# SPDX-License-Identifier: Apache-2.0
"""HTTP/2's limits met exactly: the last byte of every window, the last stream, the last frame that asks for nothing."""

from __future__ import annotations

import pytest

from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_PAYLOAD,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    BrokenHttp2,
    Reason,
    frame,
)
from aerobee.protocol.http2.hpack import written
from aerobee.protocol.http2.sending import FORGIVEN
from aerobee.protocol.http2.streams import RESET_COUNTS, Streams
from tests.protocol.http2.test_streams import BLOCK, HELLO, OPEN, Kept, Side, greeted, number

TRAILERS = written(("grpc-status", "0"))
LAST = frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS)


def broken(side: Side, *said: bytes) -> BrokenHttp2:
    with pytest.raises(BrokenHttp2) as found:
        side.hear(*said)
    return found.value


def asked(**limits: int) -> Side:
    """A stream whose request is whole."""
    side = greeted(**limits)
    side.hear(OPEN, frame(DATA, END_STREAM, 1, b"x"))
    return side


# -- greetings ---------------------------------------------------------------------------------------------


def test_the_server_greets_with_its_limits_before_it_answers() -> None:
    side = Side(max_streams=7, max_headers=900, window_bytes=100_000, connection_window_bytes=200_000)
    side.hear(PREFACE)
    assert side.said() == (
        frames.settings({frames.MAX_STREAMS: 7, frames.INITIAL_WINDOW: 100_000, frames.MAX_HEADERS: 900})
        + frames.window_update(0, 200_000 - 65_535)
    )
    assert not side.streams.heard
    side.hear(frames.settings({}))
    assert side.streams.heard
    assert side.said() == frame(SETTINGS, ACK, 0), "and only once"


def test_an_ack_of_our_settings_is_not_theirs() -> None:
    side = Side()
    side.hear(PREFACE, frame(SETTINGS, ACK, 0))
    assert not side.streams.heard


def test_nothing_is_said_before_the_preface_is_whole() -> None:
    side = Side()
    for at in range(len(PREFACE)):
        assert side.said() == b"", at
        side.hear(PREFACE[at : at + 1])
    assert side.said().startswith(b"\0\0\x12\4"), "three settings"


# -- what the peer may send --------------------------------------------------------------------------------


def test_a_frame_may_be_as_long_as_the_limit() -> None:
    side = greeted()
    side.hear(OPEN, frame(DATA, 0, 1, bytes(MAX_PAYLOAD)))
    assert len(side.made[1].body) == MAX_PAYLOAD
    assert broken(side, frame(DATA, 0, 1, bytes(MAX_PAYLOAD + 1))).reason is Reason.FRAME_SIZE_ERROR


def test_a_window_opens_again_when_half_of_it_is_used_and_not_before() -> None:
    side = greeted(window_bytes=10_000)
    side.hear(OPEN, frame(DATA, 0, 1, bytes(5_000)))
    assert side.said() == b""
    side.hear(frame(DATA, 0, 1, b"x"))
    assert side.said() == frames.window_update(1, 5_001)
    side.hear(frame(DATA, 0, 1, bytes(5_000)))
    assert side.said() == b"", "a whole window again"
    side.hear(frame(DATA, 0, 1, bytes(5_000)))
    assert side.said() == frames.window_update(1, 10_000), "to the last byte of it"


def test_padding_counts_against_the_window_and_is_no_data() -> None:
    side = greeted(window_bytes=100)
    side.hear(OPEN, frame(DATA, PADDED, 1, b"\x30" + b"ab" + bytes(48)))
    assert side.said() == frames.window_update(1, 51)
    assert side.made[1].body == b"ab"
    side.hear(frame(DATA, PADDED, 1, b"\x03" + bytes(3)))
    assert side.made[1].body == b"ab"
    assert broken(side, frame(DATA, PADDED, 1, b"\x04" + bytes(3))).reason is Reason.PROTOCOL_ERROR
    assert broken(side, frame(DATA, PADDED, 1)).reason is Reason.PROTOCOL_ERROR


def test_one_byte_more_than_a_window_is_too_much() -> None:
    side = greeted(window_bytes=100)
    side.hear(OPEN, frame(DATA, 0, 1, bytes(50)))
    found = broken(side, frame(DATA, 0, 1, bytes(51)))
    assert (found.reason, str(found)) == (
        Reason.FLOW_CONTROL_ERROR,
        "more data than the window of stream 1",
    )


def test_all_streams_together_have_a_window_which_opens_at_half_too() -> None:
    side = greeted(connection_window_bytes=70_000)
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 3, BLOCK))
    for at in (1, 3, 1):
        side.hear(frame(DATA, 0, at, bytes(10_000)))
    side.hear(frame(DATA, 0, 1, bytes(5_000)))
    assert side.said() == b""
    side.hear(frame(DATA, 0, 3, b"x"))
    assert side.said() == frames.window_update(0, 35_001)
    for at in (1, 3, 1):
        side.hear(frame(DATA, 0, at, bytes(10_000)))
    assert side.said() == b"", "from the whole window on"


def test_data_of_streams_that_are_over_still_counts_for_the_connection() -> None:
    side = asked(connection_window_bytes=65_535)
    side.streams.end(side.made[1], TRAILERS)
    side.said()
    for _ in range(4):
        side.hear(frame(DATA, 0, 1, bytes(8_192)))
    assert side.said() == frames.window_update(0, 1 + 4 * 8_192)
    assert side.made[1].body == b"x"


def test_a_connection_s_window_is_kept_to() -> None:
    side = greeted(connection_window_bytes=65_535, window_bytes=1 << 20)
    side.streams.limits = side.streams.limits._replace(connection_window_bytes=0)  # opened no more
    side.hear(OPEN, *[frame(DATA, 0, 1, bytes(16_383))] * 4)
    side.hear(frame(DATA, 0, 1, bytes(3)))
    found = broken(side, frame(DATA, 0, 1, b"x"))
    assert (found.reason, str(found)) == (
        Reason.FLOW_CONTROL_ERROR,
        "more data than the connection's window",
    )


@pytest.mark.parametrize("stream", [2, 3, 0], ids=["even", "newer", "none"])
def test_data_of_a_stream_that_never_was_breaks_the_rules(stream: int) -> None:
    side = greeted()
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 7, BLOCK))
    if stream == 3:
        stream = 9
    assert broken(side, frame(DATA, 0, stream, b"x")).reason is Reason.PROTOCOL_ERROR
    assert broken(side, frame(RST_STREAM, 0, stream, number(8))).reason is Reason.PROTOCOL_ERROR


def test_a_stream_between_two_others_was_passed_over_and_its_data_goes_nowhere() -> None:
    side = greeted()
    side.hear(
        frame(HEADERS, END_HEADERS, 7, BLOCK), frame(DATA, 0, 5, b"x"), frame(RST_STREAM, 0, 5, number(8))
    )
    assert side.made[7].told == []


def test_a_request_ends_by_data_by_headers_or_by_trailers() -> None:
    side = greeted()
    side.hear(frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK))
    side.hear(frame(HEADERS, END_HEADERS, 3, BLOCK), frame(DATA, END_STREAM, 3, b""))
    side.hear(frame(HEADERS, END_HEADERS, 5, BLOCK), frame(HEADERS, END_HEADERS | END_STREAM, 5, TRAILERS))
    assert [side.made[at].told for at in (1, 3, 5)] == [["ended"]] * 3
    assert [side.made[at].heard_all for at in (1, 3, 5)] == [True] * 3
    side.hear(frame(HEADERS, END_HEADERS, 5, TRAILERS))
    assert side.made[5].told == ["ended"], "and is heard once"
    side.hear(frame(DATA, 0, 3, b"late"))
    assert side.made[3].body == b""


def test_headers_in_the_middle_of_a_request_that_do_not_end_it_break_the_rules() -> None:
    side = greeted()
    side.hear(OPEN)
    assert str(broken(side, OPEN)) == "headers in the middle of stream 1"


def test_headers_may_come_in_parts_up_to_the_limit() -> None:
    long = written(("x", "v" * 1_000))
    side = greeted(max_headers=1_100)
    side.hear(frame(HEADERS, END_STREAM, 1, long[:5]), frame(CONTINUATION, 0, 1, long[5:700]))
    assert side.made == {}
    side.hear(frame(CONTINUATION, END_HEADERS, 1, long[700:]))
    assert side.made[1].fields == {"x": "v" * 1_000}
    assert side.made[1].told == ["ended"], "the flags of the first part count"
    side.hear(frame(PING, 0, 0, bytes(8)))  # the block is over
    for size, reason in ((1_100, Reason.COMPRESSION_ERROR), (1_101, Reason.ENHANCE_YOUR_CALM)):
        other = greeted(max_headers=1_100)
        parts = (
            frame(HEADERS, 0, 1, b"\xff" * 600),
            frame(CONTINUATION, END_HEADERS, 1, b"\xff" * (size - 600)),
        )
        assert broken(other, *parts).reason is reason, size


def test_a_header_block_goes_on_for_the_stream_that_began_it() -> None:
    side = greeted()
    found = broken(side, frame(HEADERS, 0, 1, BLOCK[:3]), frame(CONTINUATION, END_HEADERS, 3, BLOCK[3:]))
    assert (found.reason, str(found)) == (
        Reason.PROTOCOL_ERROR,
        "a header block goes on that was never begun",
    )


def test_priorities_before_the_headers_are_passed_over() -> None:
    side = greeted()
    side.hear(frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, b"\x82" * 5 + BLOCK))
    assert side.made[1].fields == {":method": "POST", ":path": "/x"}


def test_a_stream_that_is_over_leaves_room_for_another() -> None:
    side = greeted(max_streams=1)
    side.hear(OPEN, frame(DATA, END_STREAM, 1, b""))
    side.streams.end(side.made[1], TRAILERS)
    side.hear(frame(HEADERS, END_HEADERS, 3, BLOCK))
    assert sorted(side.made) == [1, 3]
    side.hear(frame(HEADERS, END_HEADERS, 5, BLOCK))
    assert sorted(side.made) == [1, 3]


def test_a_refused_stream_may_not_be_opened_again() -> None:
    side = greeted(max_streams=1)
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 3, BLOCK))
    side.streams.end(side.made[1], TRAILERS)
    side.said()
    side.hear(frame(HEADERS, END_HEADERS, 3, BLOCK), frame(DATA, 0, 3, b"x"))
    assert 3 not in side.made
    assert side.said() == b""


def test_the_reserved_bit_of_a_stream_s_number_says_nothing() -> None:
    side = greeted()
    side.hear(OPEN[:5] + number(1 | 1 << 31) + OPEN[9:])
    assert sorted(side.made) == [1]


def test_the_reserved_bit_of_what_a_window_opens_by_says_nothing() -> None:
    side = asked()
    for at in (0, 1):
        side.hear(frame(WINDOW_UPDATE, 0, at, number(5 | 1 << 31)))
    assert side.made[1].window == 65_540
    side.streams.send(side.made[1], bytes(65_541))
    assert side.streams.unsent_bytes == 1


# -- frames that ask for nothing -----------------------------------------------------------------------------

TRIFLES = {
    "settings": frames.settings({}),
    "acked settings": frame(SETTINGS, ACK, 0),
    "ping": frame(PING, 0, 0, bytes(8)),
    "answered ping": frame(PING, ACK, 0, bytes(8)),
    "priority": frame(PRIORITY, 0, 1, bytes(5)),
    "goodbye": frames.goodbye(0, Reason.NO_ERROR),
    "window of all": frame(WINDOW_UPDATE, 0, 0, number(1)),
    "window of one": frame(WINDOW_UPDATE, 0, 1, number(1)),
    "unknown": frame(99, 0, 0),
    "empty data": frame(DATA, 0, 1, b""),
    "data of a stream that is over": frame(DATA, 0, 5, b"x"),
    "headers of a stream that is over": frame(HEADERS, END_HEADERS, 5, BLOCK),
    "refused stream": frame(HEADERS, END_HEADERS, 9, BLOCK),
}


@pytest.mark.parametrize("name", TRIFLES)
def test_each_counts_once_and_the_limit_is_the_last_that_is_borne(name: str) -> None:
    side = greeted(max_trifles=50, max_streams=2)
    side.hear(OPEN, frame(HEADERS, END_HEADERS | END_STREAM, 5, BLOCK))
    side.streams.end(side.made[5], TRAILERS)
    side.hear(frame(HEADERS, END_HEADERS, 7, BLOCK))
    side.streams.forgive()
    step = 9

    def one() -> bytes:
        nonlocal step
        if name != "refused stream":
            return TRIFLES[name]
        step += 2
        return frame(HEADERS, END_HEADERS, step, BLOCK)

    for _ in range(50):
        side.hear(one())
    found = broken(side, one())
    assert (found.reason, str(found)) == (
        Reason.ENHANCE_YOUR_CALM,
        "more than 50 frames a second that ask for nothing",
    )


def test_a_reset_counts_for_several() -> None:
    side = greeted(max_trifles=RESET_COUNTS)
    side.hear(OPEN)
    side.streams.forgive()
    side.hear(frame(RST_STREAM, 0, 1, number(8)))
    assert broken(side, TRIFLES["ping"]).reason is Reason.ENHANCE_YOUR_CALM


def test_a_part_of_a_header_block_counts_too() -> None:
    side = greeted(max_trifles=3)
    side.streams.forgive()
    side.hear(frame(HEADERS, 0, 1, b""), *[frame(CONTINUATION, 0, 1)] * 3)
    assert broken(side, frame(CONTINUATION, 0, 1)).reason is Reason.ENHANCE_YOUR_CALM


def test_streams_and_data_sent_are_forgiven_for() -> None:
    side = greeted(max_trifles=10)
    side.streams.forgive()
    side.hear(OPEN)
    side.hear(*[TRIFLES["ping"]] * (10 + FORGIVEN))
    side.streams.send(side.made[1], b"one frame")
    side.hear(*[TRIFLES["ping"]] * FORGIVEN)
    side.streams.send(side.made[1], bytes(2 * MAX_PAYLOAD))  # two of them, the long way
    side.hear(*[TRIFLES["ping"]] * (2 * FORGIVEN))
    broken(side, TRIFLES["ping"])


def test_data_with_something_in_it_is_no_trifle() -> None:
    side = greeted(max_trifles=2)
    side.streams.forgive()
    side.hear(OPEN, *[frame(DATA, 0, 1, b"x")] * 50)
    assert side.made[1].body == b"x" * 50


def test_pings_are_answered_with_what_they_say_and_answers_are_counted() -> None:
    side = greeted()
    side.hear(frame(PING, 0, 0, b"12345678"), frame(PING, ACK, 0, bytes(8)), frame(PING, ACK, 0, bytes(8)))
    assert side.said() == frame(PING, ACK, 0, b"12345678")
    assert side.streams.answered_pings == 2
    side.streams.ping()
    assert side.said() == frame(PING, 0, 0, bytes(8))
    assert broken(side, frame(PING, 0, 1, bytes(8))).reason is Reason.FRAME_SIZE_ERROR


# -- what we send ------------------------------------------------------------------------------------------


def test_a_message_that_just_fits_leaves_at_once() -> None:
    side = asked()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 100}))
    side.said()
    side.streams.send(side.made[1], bytes(100))
    assert side.said() == frame(DATA, 0, 1, bytes(100))
    assert (side.made[1].window, side.streams.unsent_bytes) == (0, 0)
    side.streams.send(side.made[1], b"x")
    assert (side.said(), side.streams.unsent_bytes) == (b"", 1)
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(1)))
    assert side.said() == frame(DATA, 0, 1, b"x")
    assert side.made[1].told == ["ended", "flowing"]


def test_a_message_that_just_fits_a_frame_is_one_frame() -> None:
    side = asked()
    side.streams.send(side.made[1], bytes(MAX_PAYLOAD))
    side.streams.send(side.made[1], bytes(MAX_PAYLOAD + 1))
    assert side.said() == b"".join(frame(DATA, 0, 1, bytes(size)) for size in (MAX_PAYLOAD, MAX_PAYLOAD, 1))


def test_what_comes_after_something_unsent_waits_behind_it_and_the_trailers_last() -> None:
    side = asked()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 3}))
    side.said()
    for part in (b"abcde", b"f"):
        side.streams.send(side.made[1], part)
    side.streams.end(side.made[1], TRAILERS)
    assert (side.said(), side.streams.unsent_bytes) == (frame(DATA, 0, 1, b"abc"), 3)
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(1)))
    assert (side.said(), side.streams.unsent_bytes) == (frame(DATA, 0, 1, b"d"), 2)
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(9)))
    assert side.said() == frame(DATA, 0, 1, b"e") + frame(DATA, 0, 1, b"f") + LAST
    assert side.streams.unsent_bytes == 0
    assert not side.streams.open


def test_the_window_of_all_holds_back_what_that_of_a_stream_would_let_through() -> None:
    side = asked()
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(100_000)))
    side.streams.send(side.made[1], bytes(65_536))
    assert side.streams.unsent_bytes == 1
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(1)))
    assert side.said() == frame(DATA, 0, 1, b"\0")
    side.streams.send(side.made[1], b"y")
    assert side.said() == b"", "and the fast way looks at it too"


def test_messages_that_leave_at_once_use_the_window_of_all() -> None:
    side = asked()
    side.hear(
        frame(HEADERS, END_HEADERS | END_STREAM, 3, BLOCK), frames.settings({frames.INITIAL_WINDOW: 90_000})
    )
    for at in (1, 3, 1, 3, 1):
        side.streams.send(side.made[at], bytes(16_000))
    assert side.streams.unsent_bytes == 5 * 16_000 - 65_535


def test_a_stream_whose_own_window_is_shut_keeps_nobody_else_waiting() -> None:
    """The window of all is opened once, for all of them."""
    side = asked()
    for at in (3, 5):
        side.hear(frame(HEADERS, END_HEADERS | END_STREAM, at, BLOCK))
    side.streams.send(side.made[1], bytes(65_535 + 7))  # shuts both
    for at in (3, 5):
        side.streams.send(side.made[at], b"abc")
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(100)))
    assert side.said() == frame(DATA, 0, 3, b"abc") + frame(DATA, 0, 5, b"abc")
    assert side.streams.unsent_bytes == 7


def test_windows_may_be_as_large_as_the_limit() -> None:
    side = asked()
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(MAX_WINDOW - 65_535)))
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(MAX_WINDOW - 65_535)))
    assert broken(side, frame(WINDOW_UPDATE, 0, 0, number(1))).reason is Reason.FLOW_CONTROL_ERROR
    assert broken(side, frame(WINDOW_UPDATE, 0, 1, number(1))).reason is Reason.FLOW_CONTROL_ERROR
    side.hear(frames.settings({frames.INITIAL_WINDOW: MAX_WINDOW}))


def test_a_larger_first_window_is_that_of_open_and_of_new_streams() -> None:
    side = asked()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 70_000}), frame(HEADERS, END_HEADERS, 3, BLOCK))
    assert (side.made[1].window, side.made[3].window) == (70_000, 70_000)
    side.hear(frames.settings({frames.INITIAL_WINDOW: 10, 1: 5, 2: 0}))
    assert (side.made[1].window, side.made[3].window) == (10, 10)


def test_what_is_not_wanted_any_more_is_not_counted_any_more() -> None:
    side = asked()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 1}), frame(HEADERS, END_HEADERS | END_STREAM, 3, BLOCK))
    for at in (1, 3):
        side.streams.send(side.made[at], b"abc")
        side.streams.send(side.made[at], b"de")
    side.streams.end(side.made[1], TRAILERS)
    assert side.streams.unsent_bytes == 8
    side.hear(frame(RST_STREAM, 0, 1, number(8)))
    assert (side.streams.unsent_bytes, sorted(side.streams._blocked)) == (4, [3])
    assert (side.made[1].said_all, side.made[1].ends_with) == (True, None)
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(1)))
    assert side.said() == b""
    side.streams.gone()
    assert (side.streams.unsent_bytes, side.streams._blocked, side.made[3].said_all) == (0, {}, True)


def test_an_answer_ends_a_request_that_is_whole_without_a_reset() -> None:
    side = asked()
    side.said()
    side.streams.send_headers(side.made[1], BLOCK)
    side.streams.end(side.made[1], TRAILERS)
    assert side.said() == frame(HEADERS, END_HEADERS, 1, BLOCK) + LAST
    assert not side.streams.open


def test_a_request_that_ends_after_its_answer_is_not_told_so() -> None:
    side = greeted()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 0}), OPEN)
    side.streams.send(side.made[1], b"answer")
    side.streams.end(side.made[1], TRAILERS)
    side.hear(frame(DATA, END_STREAM, 1, b"x"))
    assert (side.made[1].told, side.made[1].heard_all) == ([], True)
    assert side.made[1].body == b"x", "once"


def test_an_answer_to_the_headers_alone_waits_for_its_window_too() -> None:
    side = greeted()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 0}))

    def refuse(streams: Streams, at: int, fields: dict[str, str]) -> Kept:
        made = side.made[at] = Kept(streams, at, fields)
        streams.send(made, b"no")
        streams.end(made, TRAILERS)
        return made

    side.streams._open = refuse
    side.hear(frame(HEADERS, END_HEADERS | END_STREAM, 1, BLOCK))
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(2)))
    assert side.said() == frame(DATA, 0, 1, b"no") + LAST
    assert not side.streams.open


def test_the_goodbye_names_the_newest_stream_and_the_reason() -> None:
    side = greeted()
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 7, BLOCK))
    side.streams.leave(Reason.ENHANCE_YOUR_CALM, "too much é")
    assert side.said() == frame(GOAWAY, 0, 0, number(7) + number(11) + b"too much ?")
    side.hear(HELLO[len(PREFACE) :])
    assert side.said() == frame(SETTINGS, ACK, 0), "and the rest goes on"


def test_no_window_opens_for_a_stream_that_its_data_has_ended() -> None:
    """A peer takes a frame for a stream that is over as a mistake of ours."""

    class AnswersEarly(Kept):
        __slots__ = ()

        def received(self, data: bytes) -> None:
            self.streams.end(self, TRAILERS)

    side = greeted(window_bytes=100)
    side.streams._open = AnswersEarly
    side.hear(OPEN, frame(DATA, 0, 1, bytes(60)))
    assert side.said() == LAST + frames.reset(1, Reason.NO_ERROR)


def test_who_is_told_that_his_stream_flows_cannot_overtake_what_waits_in_another() -> None:
    told: list[int] = []

    class Forwards(Kept):
        """What it has to say next is for the other stream."""

        __slots__ = ()

        def flowing(self) -> None:
            if not told:
                told.append(self.number)
                self.streams.send(side.streams.open[3], b"later")

    side = greeted()
    side.streams._open = Forwards
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 3, BLOCK))
    first, second = side.streams.open[1], side.streams.open[3]
    side.streams._window = 0
    side.streams.send(first, b"x")
    side.streams.send(second, b"before")
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(100)))
    assert told == [1]
    assert side.said() == frame(DATA, 0, 1, b"x") + frame(DATA, 0, 3, b"before") + frame(DATA, 0, 3, b"later")
