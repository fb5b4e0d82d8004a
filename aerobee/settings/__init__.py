# SPDX-License-Identifier: Apache-2.0
"""The one door for settings: declared once in `broker.py`, `store.py` and `namesrv.py`, everything else is made from
that: files, environment, flags, `Server(...)`, getBrokerConfig and updateBrokerConfig, docs/settings.md."""

from aerobee.settings.broker import VIP_BELOW as VIP_BELOW
from aerobee.settings.broker import BrokerConfig as BrokerConfig
from aerobee.settings.in_force import InForce as InForce
from aerobee.settings.namesrv import NamesrvConfig as NamesrvConfig
from aerobee.settings.sources import Settings as Settings
from aerobee.settings.sources import load as load
from aerobee.settings.store import StoreConfig as StoreConfig
