import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.paper_gguf import Dense, write_paper
from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.gguf.facts import check_loadable, file_digest, read_facts
from veriloop_tui.engine.gguf.shards import shard_names, stem
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import ModelFileInvalid, ModelNotFound


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return write_paper(tmp_path / "m.gguf", Dense(), tensors_each=15)


def parts_of(first: Path) -> list[Path]:
    return sorted(first.parent.iterdir())


def patch(path: Path, key: str, value: int, form: str) -> None:
    data = path.read_bytes()
    at = data.index(key.encode()) + len(key) + 4
    path.write_bytes(data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :])


def test_a_model_in_parts_has_the_facts_of_the_whole(first: Path, tmp_path: Path) -> None:
    whole = read_facts(write_paper(tmp_path / "whole.gguf", Dense()))

    facts = read_facts(first)

    assert (facts.sizes, facts.layers) == (whole.sizes, whole.layers)
    assert facts.name == "m"
    assert len(facts.parts) == facts.split_count == len(parts_of(first)) - 1
    assert facts.file_size == sum(path.stat().st_size for path in parts_of(first)[:-1])
    check_loadable(facts)


def test_any_part_leads_to_the_first_which_llama_cpp_loads(first: Path) -> None:
    last = parts_of(first)[-1]

    facts = read_facts(last)

    assert facts.path == str(first)
    silence_logs()
    Model(Path(facts.path), LoadSettings(first, threads=1), lambda: True, heads=False).close()


def test_a_missing_part_is_named(first: Path) -> None:
    parts_of(first)[1].unlink()

    with pytest.raises(ModelFileInvalid, match=r"part 2 of 3 is missing; download m-00002-of"):
        read_facts(first)


def test_a_part_that_is_cut_short_is_named(first: Path) -> None:
    last = parts_of(first)[-1]
    last.write_bytes(last.read_bytes()[:-10])

    with pytest.raises(ModelFileInvalid, match="part 3 is cut short"):
        check_loadable(read_facts(first))


def test_a_part_of_another_place_is_refused(first: Path) -> None:
    second, third = parts_of(first)[1:]
    shutil.copy(third, second)

    with pytest.raises(ModelFileInvalid, match="part 2 holds another part"):
        read_facts(first)


def test_parts_of_another_count_are_refused(first: Path) -> None:
    patch(parts_of(first)[2], "split.count", 4, "<H")

    with pytest.raises(ModelFileInvalid, match="another number of parts"):
        read_facts(first)


def test_parts_that_lack_tensors_are_refused(first: Path) -> None:
    patch(first, "split.tensors.count", 99, "<i")

    with pytest.raises(ModelFileInvalid, match=r"\d+ of 99 tensors"):
        read_facts(first)


def test_parts_that_hold_the_same_tensor_are_refused(first: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write_paper(tmp_path / "other" / "m.gguf", replace(Dense(), blocks=4), tensors_each=15)
    second = parts_of(first)[1]
    data = parts_of(other)[0].read_bytes()
    second.write_bytes(data)
    patch(second, "split.no", 1, "<H")

    with pytest.raises(ModelFileInvalid, match="hold the same tensor"):
        read_facts(first)


def test_a_part_whose_name_was_changed_is_not_loaded_as_if_it_were_whole(
    first: Path, tmp_path: Path
) -> None:
    alone = first.rename(tmp_path / "alone.gguf")

    with pytest.raises(ModelFileInvalid, match="one of 3 parts"):
        check_loadable(read_facts(alone))


def test_the_digest_covers_every_part(first: Path) -> None:
    before = file_digest(read_facts(first))
    last = parts_of(first)[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)

    assert file_digest(read_facts(first)) != before


def test_names_of_parts_are_made_from_any_of_them() -> None:
    assert shard_names("m.gguf") == ("m.gguf",)
    assert shard_names("a-Q4_K-00002-of-00003.gguf") == (
        "a-Q4_K-00001-of-00003.gguf",
        "a-Q4_K-00002-of-00003.gguf",
        "a-Q4_K-00003-of-00003.gguf",
    )
    assert stem("a-Q4_K-00002-of-00003.gguf") == "a-Q4_K"


@pytest.mark.parametrize("name", ["m-00000-of-00003.gguf", "m-00004-of-00003.gguf"])
def test_a_number_outside_its_count_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")

    with pytest.raises(ModelFileInvalid, match="outside its own count"):
        read_facts(tmp_path / name)


def test_a_set_of_absurdly_many_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-99999.gguf").write_bytes(b"")

    with pytest.raises(ModelFileInvalid):
        read_facts(tmp_path / "m-00001-of-99999.gguf")


def test_a_first_part_that_is_not_there_is_said(first: Path) -> None:
    last = parts_of(first)[-1]
    first.unlink()

    with pytest.raises(ModelFileInvalid, match="part 1 of 3 is missing"):
        read_facts(last)
    with pytest.raises(ModelNotFound):
        read_facts(first)
