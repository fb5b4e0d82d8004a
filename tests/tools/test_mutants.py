# SPDX-License-Identifier: Apache-2.0
"""`make mutants`: which bugs it puts into a file, and that it can tell them again when lines have moved."""

from __future__ import annotations

import ast

from tools.mutants.mutations import mutants_of
from tools.mutants.results import equivalents

SOURCE = b'''
log = logging.getLogger("quiet")
LIMIT: int = 3

@decorated("not this")
async def turn(queue: list[int], *, now: int = 0) -> bool:
    """Nor this."""
    if queue and queue[-1] < now:
        log.info("never %s", now + 1)
        await queue.settle()
        queue.size -= 1
        raise ValueError("text for people" + str(now))
    return max(now, LIMIT)
'''


def changes(source: bytes) -> set[tuple[str, str]]:
    return {(each.before, each.after) for each in mutants_of("a.py", source)}


def test_a_bug_of_every_kind_is_found_and_texts_for_people_are_left_alone() -> None:
    assert changes(SOURCE) == {
        ("3", "4"),
        ("0", "1"),
        ("queue and queue[-1] < now", "(not (queue and queue[-1] < now))"),
        ("queue and queue[-1] < now", "(queue or queue[-1] < now)"),
        ("queue and queue[-1] < now", "(queue)"),
        ("queue and queue[-1] < now", "(queue[-1] < now)"),
        ("queue[-1] < now", "(queue[-1] <= now)"),
        ("1", "2"),
        ("await queue.settle()", "queue.settle()"),
        ("await queue.settle()", "pass"),
        ("queue.size -= 1", "queue.size += 1"),
        ("queue.size -= 1", "pass"),
        ('raise ValueError("text for people" + str(now))', "pass"),
        ("return max(now, LIMIT)", "return None"),
        ("max", "min"),
    }


def test_a_mutant_changes_its_piece_and_nothing_else() -> None:
    for each in mutants_of("a.py", SOURCE):
        mutated = each.applied(SOURCE)
        assert mutated[: each.start] == SOURCE[: each.start]
        assert mutated.endswith(SOURCE[each.end :])
        ast.parse(mutated)


def test_a_mutant_keeps_its_name_when_lines_move_and_those_that_read_alike_have_their_own() -> None:
    before = mutants_of("a.py", SOURCE)
    moved = mutants_of("a.py", b"# a line more\n" + SOURCE)
    assert [each.id for each in before] == [each.id for each in moved]
    assert [each.line + 1 for each in before] == [each.line for each in moved]
    assert len({each.id for each in before}) == len(before)


def test_every_mutant_that_is_excused_has_a_reason() -> None:
    assert all(len(why) > 20 for why in equivalents().values())
