"""Canonical bytes: one form per value, and a bundle's id over all that it binds."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.budget import Spent
from veriloop_tui.core.bundle import Binding, CertifiedBundle, ControlledState, Origin
from veriloop_tui.core.canonical import canonical_bytes, digest
from veriloop_tui.core.chat import Sampling
from veriloop_tui.core.obligation import CheckId, CheckKind, CommandRecord
from veriloop_tui.core.rank import make_rank
from veriloop_tui.core.snapshot import SnapshotId

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

CHECK = CheckId("t", CheckKind.TEST, "a")
BUNDLE = CertifiedBundle(
    artifact=SnapshotId("00"),
    state=ControlledState(make_rank({CHECK: 1}), 1, Spent(attempts=1), "11"),
    verification=(CommandRecord("t", ("true",), 0, 0.5, "22", "tail", ()),),
    binding=Binding(
        origin=Origin.PROPOSED,
        parent="33",
        contract_hash="44",
        task="task",
        model=None,
        sampling=Sampling(),
        seed=1,
        prompt_hash="55",
        program_version="0",
        sandbox_tier="best",
        staging_rung="overlay",
        platform="here",
    ),
)


@given(plain)
def test_equal_values_have_equal_bytes_that_read_back_as_the_value(value: Any) -> None:
    data = canonical_bytes(value)
    assert data == canonical_bytes(json.loads(data))
    data.decode("ascii")


def test_the_order_of_keys_does_not_matter() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        canonical_bytes(object())
    with pytest.raises(ValueError, match="JSON"):
        canonical_bytes(float("nan"))


CHANGED: dict[str, Any] = {
    "artifact": SnapshotId("ff"),
    "state": dataclasses.replace(BUNDLE.state, rank=make_rank({CHECK: 0})),
    "verification": (),
    "binding": dataclasses.replace(BUNDLE.binding, parent="ff"),
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(CertifiedBundle)])
def test_a_bundle_with_another_part_has_another_id(field: str) -> None:
    other = dataclasses.replace(BUNDLE, **{field: CHANGED[field]})
    assert other.bundle_id != BUNDLE.bundle_id
    assert dataclasses.replace(BUNDLE).bundle_id == BUNDLE.bundle_id


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Binding)])
def test_every_field_of_the_binding_is_bound(field: str) -> None:
    values: dict[str, Any] = {field: "something else"}
    binding = dataclasses.replace(BUNDLE.binding, **values)
    assert dataclasses.replace(BUNDLE, binding=binding).bundle_id != BUNDLE.bundle_id
