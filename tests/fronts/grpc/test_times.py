# SPDX-License-Identifier: Apache-2.0
"""Times written and read without protobuf's own functions are what those would make of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import Refused

LAST = limits.LAST_SECOND * 1000 + 999


@given(st.integers(0, LAST))
def test_a_time_is_the_same_either_way(ms: int) -> None:
    ours, theirs = pb.SystemProperties(), pb.SystemProperties()
    convert.set_time(ours.born_timestamp, ms)
    theirs.born_timestamp.FromMilliseconds(ms)
    assert ours == theirs
    assert limits.milliseconds(ours.born_timestamp) == ms


@given(st.integers(-limits.LAST_SECOND, limits.LAST_SECOND), st.integers(-(10**9), 10**10 - 1))
def test_what_protobuf_refuses_or_rounds_is_refused_or_rounded(seconds: int, nanos: int) -> None:
    moment = pb.SystemProperties().born_timestamp
    moment.seconds, moment.nanos = seconds, nanos % 2**31
    try:
        wanted = moment.ToMilliseconds()
    except ValueError:
        with pytest.raises(Refused):
            limits.milliseconds(moment)
    else:
        assert limits.milliseconds(moment) == wanted


@pytest.mark.parametrize(("said", "told"), [(-5, 0), (LAST + 1, LAST), (2**62, LAST)])
def test_a_time_that_cannot_be_told_is_the_nearest(said: int, told: int) -> None:
    system = pb.SystemProperties()
    convert.set_time(system.born_timestamp, said)
    assert system.born_timestamp.ToMilliseconds() == told
