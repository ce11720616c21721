"""Reports of made-up measurements, whose names were written by somebody with bad intentions."""

import csv
import html
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from quant.cli.report import register
from quant.report.csv_file import to_csv
from quant.report.data import Pair
from quant.report.html_page import Image, to_html
from quant.report.json_file import dump, load
from quant.report.markdown import escaped, to_markdown
from quant.report.pages import write_report
from quant.report.plot import plots, to_bytes
from quant.tasks.record import RunFile
from quant.tasks.tasks import summarise
from tests.quant.made_up import average, comparison, loss, report
from tests.quant.tasks.test_tasks import runs_of
from veriloop_tui.errors import UsageError

HOSTILE = "<script>alert('x')</script>|`$\\frac{1}$ [a](http://b) &lt;\x1b[31m\n# not a heading"
SEEN = "<script>alert('x')</script>|`$\\frac{1}$ [a](http://b) &lt; # not a heading"


class Page(HTMLParser):
    """The tags, attributes and words of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    told = report(comparison(loss("a", 10, 0.1, name=HOSTILE), loss("b", 5, 0.3)))
    page = Page(to_html(told, [[Image("kld-size", b"<svg/>")]]))
    names = {tag for tag, _ in page.tags}
    assert names.isdisjoint({"script", "link", "iframe", "object", "svg", "form", "a"})
    sources = [
        value
        for _, attributes in page.tags
        for key, value in attributes.items()
        if key in ("src", "href")
    ]
    assert len(sources) == 1
    assert str(sources[0]).startswith("data:image/svg+xml;base64,")
    policies = [a["content"] for tag, a in page.tags if tag == "meta" and "content" in a]
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in policies


def test_every_hostile_text_is_shown_as_text() -> None:
    evil = replace(
        comparison(replace(loss("a", 10, 0.1, name=HOSTILE), notices=(HOSTILE,)), corpus=HOSTILE),
        base=HOSTILE,
        settings=((HOSTILE, HOSTILE),),
    )
    told = replace(report(evil), title=HOSTILE, program=HOSTILE, notices=(HOSTILE,))
    page = Page(to_html(told, [[]]))
    assert "".join(page.words).count(SEEN) >= 8
    assert "\x1b" not in "".join(page.words)


@settings(max_examples=300)
@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_markdown_shows_any_name_as_it_is(name: str) -> None:
    shown = " ".join(name.split())
    page = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(f"| a | b |\n| --- | --- |\n| x | {escaped(shown)} |\n")
    )
    cells = re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    assert html.unescape(cells[-1]) == shown
    assert "<" not in cells[-1]


@pytest.mark.parametrize("text", ["http://a.b", "@someone", "a$b$", "www.evil.example", ":bomb:"])
def test_words_that_hubs_turn_into_more_are_kept_apart(text: str) -> None:
    assert text not in escaped(text)
    assert "&#" in escaped(text)


def test_a_label_stays_readable_in_markdown() -> None:
    assert escaped("model-Q4_K_M (5.84 BPW)") == "model-Q4_K_M (5.84 BPW)"


def test_markdown_tables_have_one_cell_per_heading() -> None:
    runs = runs_of("base", [[True], [False]]) + runs_of("q|", [[False], [False]])
    rows = summarise(runs, "base", np.random.default_rng(0))
    told = report(comparison(loss("a", 10, 0.1, name=HOSTILE), loss("b", 5, 0.3)))
    page = MarkdownIt("commonmark").enable("table").render(to_markdown(replace(told, tasks=rows)))
    tables = re.findall(r"<table>.*?</table>", page, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        counts = {
            row.count("<td") + row.count("<th") - row.count("<thead")
            for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        }
        assert len(counts) == 1
    assert "<script>" not in page


def test_csv_holds_every_number_and_no_formula() -> None:
    quants = (loss("a", 10, 0.1, name="=HYPERLINK(1)"), loss("b", 5, 0.3, name='x",\n"y'))
    told = report(comparison(*quants), comparison(loss("c", 1, 0.5), corpus="@code"))
    rows = list(csv.DictReader(io.StringIO(to_csv(told))))
    assert [row["quant"] for row in rows] == ["'=HYPERLINK(1)", 'x", "y', "model-c"]
    assert [row["corpus"] for row in rows] == ["prose", "prose", "'@code"]
    assert [float(row["kld"]) for row in rows] == [0.1, 0.3, 0.5]
    assert [float(row["kld 99.9 %"]) for row in rows] == [
        one.kld_at("99.9 %") for one in (*quants, loss("c", 1, 0.5))
    ]
    assert all(row["ppl_difference_clustered"] == "" for row in rows)


def test_all_formats_are_written_and_the_same_again(tmp_path: Path) -> None:
    told = report(comparison(loss("a", 10, 0.1, name=HOSTILE), loss("b", 5, 0.3)))
    first = write_report(told, tmp_path / "one")
    second = write_report(told, tmp_path / "two")
    assert first[0].name == "report.html"
    names = {path.name for path in first}
    plots_wanted = ("kld-size", "ppl-ratio", "same-top", "kld-position", "delta-p")
    wanted = {f"1-{plot}.{form}" for plot in plots_wanted for form in ("svg", "png")}
    assert names == {"report.html", "report.md", "report.csv", *wanted}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert {path.name for path in (tmp_path / "one").iterdir()} == names


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_report(report(), tmp_path / "file")


def test_plots_are_drawn_from_names_that_look_like_mathematics_or_markup() -> None:
    names = ("$\\frac{$", "_hidden", "<b>&", "a" * 500, "")
    quants = tuple(loss(str(at), 10 + at, 0.1 * at, name=name) for at, name in enumerate(names))
    drawn = {name: to_bytes(figure, "svg") for name, figure in plots(comparison(*quants))}
    assert len(drawn) == 5
    for svg in drawn.values():
        text = svg.decode()
        assert "<b>" not in text
        assert "<script" not in text
        # Letters are outlines, so that no font is needed.
        assert "<text" not in text


def test_plots_without_data_are_left_out() -> None:
    bare = replace(loss("a", 10, 0.0), kld_by_position=(), delta_p_histogram=None)
    assert [name for name, _ in plots(comparison(bare))] == ["kld-size", "ppl-ratio", "same-top"]
    assert list(plots(comparison())) == []


def test_a_report_comes_back_from_its_json(tmp_path: Path) -> None:
    told = report(
        comparison(loss("a", 10, 0.1, name=HOSTILE), loss("b", 5, 0.3), ties=[("a", "b")]),
        comparison(),
    )
    path = tmp_path / "report.json"
    path.write_text(dump(told), encoding="utf-8")
    assert load(path) == told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "is no report"),
        ('{"format": "veriloop-quant-report", "version": 2}', "another version"),
        ('{"format": "veriloop-quant-report", "version": 1, "report": {}}', "damaged at title"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=problem):
        load(path)


def test_tasks_stand_beside_the_loss_of_the_same_file(tmp_path: Path) -> None:
    told = report(comparison(loss("a", 10, 0.125), loss("b", 5, 0.5)))
    (tmp_path / "losses.json").write_text(dump(told), encoding="utf-8")
    with RunFile(tmp_path / "runs.jsonl") as file:
        for run in runs_of("base", [[True], [True]]) + runs_of("a", [[True], [False]]):
            file.append(run)
        file.append(replace(runs_of("b", [[True]])[0], settings="other"))
    app = typer.Typer()
    register(app)
    arguments = [str(tmp_path / "losses.json"), "--tasks", str(tmp_path / "runs.jsonl")]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out"), "--title", "T"])
    assert done.exit_code == 0, done.output

    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    rows = [line for line in text.split("### Repair tasks")[1].splitlines() if line[:2] == "| "]
    _, _, base, quant = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert (base[0], base[1], base[-1]) == ("", "2 of 2", "base.gguf")
    assert (quant[0][:8], quant[1], quant[-1]) == ("0.125000", "1 of 2", "a.gguf")
    assert text.startswith("## T\n")
    assert (tmp_path / "out" / "report.html").exists()


def test_means_over_texts_and_differences_on_the_same_tokens_are_in_all_formats() -> None:
    pair = comparison(loss("a", 10, 0.25), loss("b", 5, 0.3), ties=[("a", "b")])
    apart = replace(pair, pairs=(Pair("b", "a", 0.05, 0.01),))
    with_means = replace(report(pair, apart), averages=(average(),))
    page, text = to_html(with_means, [(), ()]), to_markdown(with_means)
    for heading in (page, text):
        assert "Mean over prose, code, each the same (n_ctx 512)" in heading
        assert "0.250000 ± 0.002000" in heading
    assert "<td>[-0.001000, 0.003000]</td><td>tie</td><td>1 model-a</td>" in page
    assert "<td>[0.040000, 0.060000]</td><td></td><td>2 model-b</td>" in page
    *_, last = csv.DictReader(io.StringIO(to_csv(with_means)))
    assert (last["corpus"], last["kld"], last["ppl"]) == ("mean of prose, code", "0.25", "")
