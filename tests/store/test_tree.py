"""Trees: one encoding per directory, edits equal to building anew, diffs by subtree."""

import os
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop_tui.core.snapshot import Entry
from veriloop_tui.store import tree

NAMES = st.sampled_from(["a", "b", "B", "c.py", "é", "e\u0301", "\udcff\udc80", " ", "z" * 255])
DIGESTS = st.sampled_from(["0" * 64, "ab" * 32, "ff" * 32])


def with_directories(leaves: Mapping[str, Entry], modes: Mapping[str, int]) -> dict[str, Entry]:
    """Leaves that lie below another leaf are dropped; every directory gets an entry."""
    entries: dict[str, Entry] = {}
    for path, entry in sorted(leaves.items()):
        parents = ["/".join(path.split("/")[:i]) for i in range(1, path.count("/") + 1)]
        if any(p in entries and entries[p].kind != "directory" for p in parents):
            continue
        if path in entries:
            continue
        for parent in parents:
            entries[parent] = Entry(parent, "directory", modes.get(parent, 0o755), "", 0)
        entries[path] = entry
    return entries


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Entry]:
    leaves = {}
    for parts in draw(st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=8)):
        path = "/".join(parts)
        kind = draw(st.sampled_from(["file", "symlink", "directory"]))
        mode = draw(st.sampled_from([0o644, 0o755, 0o4711]))
        if kind == "directory":
            leaves[path] = Entry(path, "directory", mode, "", 0)
        else:
            size = draw(st.integers(0, 2**40))
            leaves[path] = Entry(path, kind, mode, draw(DIGESTS), size)  # type: ignore[arg-type]
    return with_directories(leaves, {})


def build(entries: Mapping[str, Entry], objects: dict[str, bytes]) -> str:
    root, new = tree.edit(tree.EMPTY_DIGEST, entries, objects.__getitem__)
    objects.update(new)
    return root


@given(manifests())
def test_a_tree_gives_back_every_path_kind_mode_and_digest(entries: dict[str, Entry]) -> None:
    objects: dict[str, bytes] = {}
    root = build(entries, objects)
    assert tree.flatten(root, objects.__getitem__) == entries


@given(manifests())
def test_each_object_is_the_one_encoding_of_its_directory(entries: dict[str, Entry]) -> None:
    objects: dict[str, bytes] = {}
    build(entries, objects)
    for digest, content in objects.items():
        assert tree.encode(reversed(tree.decode(content))) == content
        assert tree.object_digest(content) == digest


@given(manifests(), manifests())
def test_an_edited_tree_is_the_tree_built_anew(
    before: dict[str, Entry], after: dict[str, Entry]
) -> None:
    objects: dict[str, bytes] = {}
    root = build(before, objects)
    changes: dict[str, Entry | None] = {p: e for p, e in after.items() if before.get(p) != e}
    changes.update(dict.fromkeys(before.keys() - after.keys()))
    edited, new = tree.edit(root, changes, objects.__getitem__)
    objects.update(new)
    assert edited == build(after, {})
    assert tree.flatten(edited, objects.__getitem__) == after


@given(manifests(), manifests())
def test_a_diff_is_exactly_what_differs(before: dict[str, Entry], after: dict[str, Entry]) -> None:
    objects: dict[str, bytes] = {}
    roots = build(before, objects), build(after, objects)
    found = list(tree.diff(*roots, objects.__getitem__))
    assert {d.path: (d.before, d.after) for d in found} == {
        path: (before.get(path), after.get(path))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }
    assert [d.path for d in found] == sorted((d.path for d in found), key=os.fsencode)


def test_a_diff_does_not_read_equal_subtrees() -> None:
    def manifest(content: str) -> dict[str, Entry]:
        leaves = {f"d{i}/f": Entry(f"d{i}/f", "file", 0o644, "0" * 64, 1) for i in range(50)}
        leaves["d7/f"] = Entry("d7/f", "file", 0o644, content, 1)
        return with_directories(leaves, {})

    objects: dict[str, bytes] = {}
    before, after = build(manifest("1" * 64), objects), build(manifest("2" * 64), objects)
    read: list[str] = []

    def counting(digest: str) -> bytes:
        read.append(digest)
        return objects[digest]

    assert [d.path for d in tree.diff(before, after, counting)] == ["d7/f"]
    assert len(read) == 4


def test_an_empty_directory_is_kept_and_its_mode_is_part_of_the_tree() -> None:
    objects: dict[str, bytes] = {}
    private = build({"d": Entry("d", "directory", 0o700, "", 0)}, objects)
    public = build({"d": Entry("d", "directory", 0o755, "", 0)}, objects)
    assert len({private, public, tree.EMPTY_DIGEST}) == 3


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_a_name_that_no_directory_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        tree.encode([tree.Child(name, "file", 0o644, "0" * 64, 0)])


@given(st.binary(max_size=200))
def test_bytes_that_are_no_tree_are_refused_and_never_half_read(content: bytes) -> None:
    for candidate in (content, tree.EMPTY + content):
        try:
            children = tree.decode(candidate)
        except ValueError:
            continue
        assert tree.encode(children) == candidate


def test_an_object_out_of_order_or_with_a_name_twice_is_refused() -> None:
    one, two = (
        tree.encode([tree.Child(name, "file", 0o644, "0" * 64, 0)])[len(tree.EMPTY) :]
        for name in "ab"
    )
    assert len(tree.decode(tree.EMPTY + one + two)) == 2
    with pytest.raises(ValueError, match="out of order"):
        tree.decode(tree.EMPTY + two + one)
    with pytest.raises(ValueError, match="twice"):
        tree.decode(tree.EMPTY + one + one)


def test_a_path_without_its_directory_is_refused() -> None:
    with pytest.raises(ValueError, match="not a directory"):
        build({"a/b": Entry("a/b", "file", 0o644, "0" * 64, 0)}, {})
