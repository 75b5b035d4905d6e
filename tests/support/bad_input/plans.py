"""Plans that must be refused; see `bad_input`."""

from __future__ import annotations

from tests.support.bad_input.table import Bad, bad_json

PATH = "/v1/plans"

PLANS = [
    bad_json("plan of no kind", PATH, 40050, {}, says="kind"),
    bad_json("plan of an unknown kind", PATH, 40050, {"kind": "tidy"}, says="kind"),
    bad_json("plan, broker of a wrong type", PATH, 40050, {"kind": "drain", "brokers": ["1"]}),
    bad_json("drain of nobody", PATH, 40050, {"kind": "drain"}, says="list the brokers"),
    bad_json("drain of an unknown broker", PATH, 40002, {"kind": "drain", "brokers": [77]}, "77"),
    bad_json("expansion to nobody live", PATH, 40002, {"kind": "expand", "brokers": [77]}, "77"),
    bad_json("plan for no topic", PATH, 40050, {"kind": "balance", "topics": []}, says="topics"),
    bad_json("plan, unknown topic", PATH, 40403, {"kind": "balance", "topics": ["none"]}, "none"),
    Bad("unknown plan", "GET", f"{PATH}/none", 404, says="plan again"),
    bad_json("unknown plan applied", f"{PATH}/none/apply", 404, {}, says="plan again"),
    bad_json("throttle of nothing", f"{PATH}/none/apply", 40050, {"throttle_bytes_per_s": 0}),
]
