# SPDX-License-Identifier: Apache-2.0
"""Settings of the name server."""

from __future__ import annotations

from typing import Annotated

from aerobee.settings.declare import Declared, interval, port_number, setting


class NamesrvConfig(Declared, frozen=True, kw_only=True):
    host: Annotated[str, setting("address to listen on", "bindAddress")] = "127.0.0.1"
    port: Annotated[int, port_number("port, 0 = any free one, -1 = off", "listenPort")] = 9876
    broker_expiry_ms: Annotated[int, interval("a broker silent this long is dropped", live=True)] = 120_000
    scan_interval_ms: Annotated[
        int, interval("how often silent brokers are looked for", "scanNotActiveBrokerInterval", live=True)
    ] = 5_000
    delete_topic_with_broker_registration: Annotated[
        bool,
        setting(
            "a topic that a broker no longer registers is forgotten; only for brokers that register in full",
            "deleteTopicWithBrokerRegistration",
            live=True,
        ),
    ] = False
    authentication: Annotated[
        bool,
        setting(
            "only of a name server alone: requests but those for routes must be signed by a super user, which"
            " `init_user` and `inner_credentials` of [broker] name; one beside brokers goes by `broker.authentication`",
            "authenticationEnabled",
        ),
    ] = False
