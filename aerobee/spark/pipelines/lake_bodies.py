# SPDX-License-Identifier: Apache-2.0
"""How the bodies of a lake become columns: as this run says or, where it says nothing, as the lake remembers.

    out/_bodies.json     {"format": "delta", "schema": "id INT, name STRING", "json": false, "evolve": true}
                         "json": by the keys that come; neither that nor a schema: bodies are kept as they are

Rows of one table have one shape. Where some bodies were parsed and others kept, sums over `data` would leave messages
out and nobody would notice: so a run that says nothing goes on as before, and one that would begin another shape is
refused. What counts is the table's columns. A run that committed nothing has settled nothing, but is remembered: the
next one goes on as it began, unless it says otherwise.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.spark.decoding import json_bodies, json_schema
from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from aerobee.spark.pipelines.parquet_table import Table

log = logging.getLogger("aerobee.spark.lake")


class Asked(NamedTuple):
    """What a run says of bodies."""

    schema: str | None = None
    json: bool = False
    evolve: bool | None = None

    @property
    def option(self) -> str:
        """The option by which bodies are parsed; empty when the run says nothing of it."""
        return "--schema (schema=)" if self.schema else "--json-bodies (json=True)" if self.json else ""


class Settled(NamedTuple):
    bodies: Bodies | None  # None: they are kept as they are
    said: str = ""  # for people, where the run goes on with what an earlier one said

    @property
    def memory(self) -> dict[str, Any]:
        return self.bodies.memory if self.bodies else {"schema": None, "json": False, "evolve": True}


def settled(table: Table, topics: str, asked: Asked) -> Settled:
    """How the rows of this run are made. OptionError when they would be of another shape than those of the lake."""
    columns, kept = table.schema(), table.remembered()
    if columns is None:
        return _as_begun(table, topics, kept, asked)
    if not {json_bodies.DATA, json_bodies.BAD, json_bodies.RESCUED} & set(columns.names):
        if asked.option:
            raise _other_shape(table, asked)
        return Settled(None)
    if asked.option:
        return Settled(_as_asked(topics, asked), _from_schema_to_keys(kept) if asked.json else "")
    return _as_before(topics, kept, evolve=asked.evolve)


def _as_begun(table: Table, topics: str, kept: dict[str, Any] | None, asked: Asked) -> Settled:
    """Of a lake without a commit: what this run says or, where it says nothing, the one that began it."""
    flags = [f"--format {table.kind}"] if kept and kept.get("format") == table.kind != "parquet" else []
    bodies = _as_asked(topics, asked) if asked.option else None
    if kept and not asked.option and (kept["schema"] or _takes_keys(kept)):
        bodies, more = _of_memory(topics, kept, evolve=asked.evolve)
        flags += more
    return Settled(bodies, f"going on with {' '.join(flags)}, as the lake was begun" if flags else "")


def _as_asked(topics: str, asked: Asked) -> Bodies:
    return Bodies(topics, asked.schema, keys=asked.json or not asked.schema, evolve=asked.evolve is not False)


def _as_before(topics: str, kept: dict[str, Any] | None, *, evolve: bool | None) -> Settled:
    if kept is None:  # it was made before lakes remembered
        said = f"going on with the columns of the lake; keys that have none go to {json_bodies.RESCUED}"
        bodies = Bodies(topics, None, keys=True, evolve=False)
        return Settled(bodies, f"{said} (--json-bodies makes columns of them)")
    bodies, flags = _of_memory(topics, kept, evolve=evolve)
    return Settled(bodies, f"going on with {' '.join(flags)}, as the lake was made")


def _of_memory(topics: str, kept: dict[str, Any], *, evolve: bool | None) -> tuple[Bodies, list[str]]:
    """And the options that say it."""
    schema, keys = kept["schema"], _takes_keys(kept)
    evolves = kept["evolve"] if evolve is None else evolve
    flags = (
        [f"--schema {schema!r}"] * bool(schema) + ["--json-bodies"] * keys + ["--no-evolve"] * (not evolves)
    )
    return Bodies(topics, schema, keys=keys, evolve=evolves), flags


def _takes_keys(kept: dict[str, Any]) -> bool:
    """Whether keys that come become columns; older lakes say it only by having no schema."""
    return bool(kept.get("json", not kept["schema"]))


def _from_schema_to_keys(kept: dict[str, Any] | None) -> str:
    if kept is None or _takes_keys(kept):
        return ""
    return f"the lake was made with --schema {kept['schema']!r}; keys it does not name become columns from now on"


def _other_shape(table: Table, asked: Asked) -> OptionError:
    return OptionError(
        f"the lake {table.root} keeps bodies as they are; with {asked.option} only those that come now would have "
        f"columns. Leave it out, or choose another directory, which is filled from the first message on"
    )


class Shaped(NamedTuple):
    """A batch with columns for its bodies."""

    frame: DataFrame
    grown: tuple[str, ...] = ()  # keys of which the table has had no column, or a narrower one
    made: tuple[str, ...] = ()  # of the first batch: the columns, as in a schema


class Bodies:
    """How JSON bodies become columns: those of `schema` (DDL) as it has them, with `keys` those that come besides."""

    def __init__(self, topics: str, schema: str | None, *, keys: bool, evolve: bool) -> None:
        self._topics = topics
        self._given = json_bodies.schema_of(schema) if schema else None
        self._keys = keys
        self._evolve = evolve
        self.memory = {"schema": schema, "json": keys, "evolve": evolve}

    def check(self, table: Table) -> None:
        """OptionError when the schema given does not fit the table's columns."""
        if self._given:
            self.columns(table, None)

    def columns(self, table: Table, found: StructType | None) -> json_schema.Merged | None:
        """The columns for bodies in which `found` was found, and what of it is new; None when none is known."""
        kept, came = table.body_schema(), json_schema.distinct(found) if found and self._keys else None
        if kept is None:
            return self._first(came)
        grown = json_schema.merged(kept, self._given or came or kept, table.widening)
        if self._given and grown.conflicts:
            key, old, new = grown.conflicts[0]
            raise OptionError(
                f"topic {self._topics}: key {key!r} is {_name(old)} in the lake and {_name(new)} in the schema given, "
                f"which a {table.kind} table cannot become. Give it as {_name(old)} (values that do not fit go to "
                f"{json_bodies.RESCUED}), or choose another directory"
            )
        if self._given and came:
            more = json_schema.besides(grown.schema, came)
            grown = more._replace(added=(*grown.added, *more.added), widened=grown.widened)
        return grown if self._evolve else json_schema.Merged(kept, (), (), grown.conflicts)

    def _first(self, came: StructType | None) -> json_schema.Merged | None:
        """Of a table that has none yet."""
        if self._given is not None and came is not None:
            return json_schema.besides(self._given, came)._replace(added=())
        first = self._given or came
        return None if first is None else json_schema.Merged(first, (), (), ())

    @contextmanager
    def parsed(self, table: Table, frame: DataFrame) -> Iterator[Shaped]:
        from pyspark import StorageLevel

        # Its schema and its rows are two looks at the batch; the brokers are asked for it once.
        held = frame.persist(StorageLevel.DISK_ONLY)
        try:
            found = json_bodies.inferred(held)
            is_first, columns = table.body_schema() is None, self.columns(table, found)
            for key, old, new in columns.conflicts if columns else ():
                log.info("key=%s is %s in the lake and came as %s", key, _name(old), _name(new))
            shaped = json_bodies.parsed(held, columns.schema if columns else None, found)
            if columns is None:
                yield Shaped(shaped.drop("body"))
            else:
                made = _told(columns.schema) if is_first else ()
                yield Shaped(shaped.drop("body"), (*columns.added, *columns.widened), made)
        finally:
            held.unpersist()


def _told(schema: StructType) -> tuple[str, ...]:
    return tuple(f"{field.name} {_name(field.dataType)}" for field in schema.fields)


def _name(kind: DataType) -> str:
    """As in a schema; the keys within a type as they are."""
    text = kind.simpleString()
    return text if "struct" in text else text.upper()
