"""All families of instances, in the order of the table."""

from __future__ import annotations

from steadynet.verification.self_test import monotone, reader, robust, rounding, s_shaped, spikes, trained
from steadynet.verification.self_test.known import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        spikes.FAMILY,
        trained.FAMILY,
        robust.FAMILY,
        monotone.FAMILY,
        s_shaped.FAMILY,
        rounding.FAMILY,
        reader.FAMILY,
    )
}
