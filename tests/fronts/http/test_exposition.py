# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read

from aerobee.broker.metrics.family import Distribution, Scrape, counter, gauge, histogram
from aerobee.fronts.http.exposition import Form, form_of, lines

HOSTILE = 'a"b\\c\nd'


def scrape() -> Scrape:
    found = Scrape()
    found.add(counter("things_total", "Things."), 7, (("name", HOSTILE),))
    found.add(gauge("depth", "Depth."), 1.5)
    found.add(histogram("sizes", "Sizes."), Distribution((1, 5), (2, 0, 3), 40), (("name", "x"),))
    return found


def test_the_text_is_what_prometheus_reads() -> None:
    text = "".join(lines(scrape(), (("node", "n"),), Form.PROMETHEUS))
    found = {family.name: family for family in read(text)}
    assert found["things"].type == "counter"
    assert found["things"].samples[0].labels == {"node": "n", "name": HOSTILE}
    assert found["depth"].samples[0].value == 1.5
    buckets = [(s.labels.get("le"), s.value) for s in found["sizes"].samples if s.name == "sizes_bucket"]
    assert buckets == [("1.0", 2), ("5.0", 2), ("+Inf", 5)]
    assert {s.name: s.value for s in found["sizes"].samples if "le" not in s.labels} == {
        "sizes_sum": 40,
        "sizes_count": 5,
    }


def test_without_labels_there_are_no_braces() -> None:
    assert "depth 1.5\n" in "".join(lines(scrape(), (), Form.PROMETHEUS))


def test_open_metrics_is_read_by_its_own_reader() -> None:
    text = "".join(lines(scrape(), (), Form.OPEN_METRICS))
    assert {family.name for family in read_open(text)} == {"things", "depth", "sizes"}


def test_open_metrics_is_for_those_who_ask() -> None:
    assert form_of("application/openmetrics-text;version=1.0.0,text/plain;q=0.5") is Form.OPEN_METRICS
    assert form_of("*/*") is Form.PROMETHEUS
