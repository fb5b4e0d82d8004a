# SPDX-License-Identifier: Apache-2.0
"""Which entry of a policy decides."""

from __future__ import annotations

import itertools

import pytest

from aerobee.protocol.access import Action, Decision, Kind, Pattern, PolicyType, Resource, every, group, topic
from aerobee.protocol.policies import Entry, Policies, Policy, check_source

HERE = "10.1.2.3"


def entry(text: str) -> Entry:
    """`Allow Topic:orders Pub,Sub from 10.0.0.0/8`"""
    words = text.split()
    sources = tuple(words[4].split(",")) if len(words) > 4 else ()
    actions = tuple(Action(word) for word in words[2].split(","))
    return Entry(Resource.parse(words[1]), actions, Decision(words[0]), sources)


def policies(*entries: str, default: tuple[str, ...] = ()) -> Policies:
    made = Policies()
    policy = Policy().merged(PolicyType.CUSTOM, map(entry, entries))
    made.put("ann", policy.merged(PolicyType.DEFAULT, map(entry, default)))
    return made


def may(made: Policies, need: object = None, source: str = HERE) -> bool:
    return made.verdict("ann", need or topic("orders", Action.PUB), source).allowed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        ((), False),
        (("Allow Topic:orders Pub",), True),
        (("Allow Topic:orders All",), True),
        (("Allow Topic:orders Sub",), False),
        (("Allow Topic:order Pub",), False),
        (("Allow Topic:orders-eu Pub",), False),
        (("Allow Topic:ord* Pub",), True),
        (("Allow Topic:* Pub",), True),
        (("Allow * Pub",), True),
        (("Allow Group:orders Pub",), False),
        (("Allow Group:* All",), False),
        # the narrower resource decides, in whichever order they were written
        (("Allow Topic:orders Pub", "Deny Topic:ord* Pub"), True),
        (("Deny Topic:orders Pub", "Allow Topic:ord* Pub"), False),
        (("Deny Topic:orders Pub", "Allow * All"), False),
        (("Allow Topic:ord* Pub", "Deny Topic:* Pub"), True),
        (("Deny Topic:ord* Pub", "Allow Topic:* Pub"), False),
        (("Allow Topic:orde* Pub", "Deny Topic:o* Pub"), True),
        (("Deny Topic:orde* Pub", "Allow Topic:o* Pub"), False),
        (("Allow Topic:* Pub", "Deny * All"), True),
        (("Deny Topic:* Pub", "Allow * All"), False),
        # an entry about another action has no say
        (("Allow Topic:ord* Pub", "Deny Topic:orders Sub"), True),
    ],
)
def test_the_narrowest_fitting_entry_decides(entries: tuple[str, ...], allowed: bool) -> None:
    for order in itertools.permutations(entries):
        assert may(policies(*order)) is allowed


def test_default_entries_count_where_no_custom_one_fits() -> None:
    assert may(policies(default=("Allow Topic:* Pub",)))
    assert not may(policies("Deny Topic:* Pub", default=("Allow Topic:orders Pub",)))
    assert may(policies("Deny Topic:* Sub", default=("Allow Topic:orders Pub",)))


def test_one_of_several_actions_is_enough() -> None:
    made = policies("Allow Topic:orders Get")
    assert may(made, topic("orders", Action.SUB, Action.GET))
    assert not may(made, topic("orders", Action.SUB))


def test_all_of_a_kind_is_more_than_any_of_it() -> None:
    listing = every(Kind.TOPIC, Action.LIST)
    assert not may(policies("Allow Topic:orders All", "Allow Topic:o* All", "Allow Group:* All"), listing)
    assert may(policies("Allow Topic:* List"), listing)
    assert may(policies("Allow * List"), listing)


@pytest.mark.parametrize(
    ("sources", "source", "allowed"),
    [
        ("10.1.2.3", HERE, True),
        ("10.1.2.30", HERE, False),
        ("10.0.0.0/8", HERE, True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("192.168.0.1,10.1.2.0/24", HERE, True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("2001:db8::/32", "2001:db8::5", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::/0", HERE, False),
        ("0.0.0.0/0", "::1", False),
        ("10.0.0.0/8", "unix:", False),
        ("10.9.9.9/8", HERE, True),  # of which machine it is written does not matter
    ],
)
def test_where_a_request_comes_from(sources: str, source: str, allowed: bool) -> None:
    assert may(policies(f"Allow Topic:orders Pub from {sources}"), source=source) is allowed


def test_an_entry_for_elsewhere_does_not_decide_here() -> None:
    made = policies("Deny Topic:orders Pub from 192.168.0.0/16", "Allow Topic:ord* Pub")
    assert may(made)
    assert not may(made, source="192.168.7.7")


@pytest.mark.parametrize("text", ["10.0.0.*", "10.0.0.1-20", "host", "", "10.0.0.0/33"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_source(text)


def test_a_change_counts_for_the_next_question() -> None:
    made = policies("Allow Topic:orders Pub")
    assert may(made)
    made.put("ann", Policy().merged(PolicyType.CUSTOM, [entry("Deny Topic:orders Pub")]))
    assert not may(made)
    made.delete("ann")
    assert made.get("ann") is None
    assert not may(made)


def test_one_users_rights_are_not_anothers() -> None:
    made = policies("Allow * All")
    assert may(made, group("g", Action.SUB))
    assert not made.verdict("annie", group("g", Action.SUB), HERE).allowed
    assert not made.verdict("", group("g", Action.SUB), HERE).allowed


def test_a_scan_of_names_is_not_remembered_for_ever() -> None:
    made = policies("Allow Topic:a* Pub")
    for number in range(10_050):
        may(made, topic(f"t{number}", Action.PUB))
    may(made, topic("x" * 100_000, Action.PUB))
    assert len(made._known) <= 10_000
    assert max(len(need.resource.name) for _, need, _ in made._known) < 300


@pytest.mark.parametrize(
    ("text", "read", "written"),
    [
        ("*", Resource(Kind.ANY, "", Pattern.ANY), "*"),
        ("Any:*", Resource(Kind.ANY, "", Pattern.ANY), "*"),
        ("topic:orders", Resource(Kind.TOPIC, "orders"), "Topic:orders"),
        ("GROUP:*", Resource(Kind.GROUP, "", Pattern.ANY), "Group:*"),
        ("Topic:abc*", Resource(Kind.TOPIC, "abc", Pattern.PREFIXED), "Topic:abc*"),
        ("Topic:a*b*", Resource(Kind.TOPIC, "a", Pattern.PREFIXED), "Topic:a*"),
        ("Topic:%DLQ%g", Resource(Kind.TOPIC, "%DLQ%g"), "Topic:%DLQ%g"),
        ("Topic:a:b", Resource(Kind.TOPIC, "a:b"), "Topic:a:b"),
    ],
)
def test_resources_are_written_as_rocketmq_writes_them(text: str, read: Resource, written: str) -> None:
    assert Resource.parse(text) == read
    assert read.text == written


@pytest.mark.parametrize("text", ["", "orders", "Foo:x", "Topic:", "Any:x", ":x"])
def test_what_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write Topic:name"):
        Resource.parse(text)
