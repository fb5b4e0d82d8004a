# SPDX-License-Identifier: Apache-2.0
"""The former place of `aerobee.settings`."""

from aerobee.settings import BrokerConfig as BrokerConfig
from aerobee.settings import NamesrvConfig as NamesrvConfig
from aerobee.settings import StoreConfig as StoreConfig
