"""Files of base logits that we write, read by llama-perplexity: are its numbers ours?

`python -m benchmarks.interop_perplexity PEERS`: PEERS is the folder of `benchmarks.peer`. For
SmolLM2 and for tiny models of odd and of even vocabulary, with rows cut off at -16 and at -24,
`quant compare` writes the base's file; llama-perplexity measures a quant against it, and so do we.
At -16 the file must have the bytes of llama-perplexity's own. Ends with 1 if anything differs.
"""

import filecmp
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.capture_perplexity import THREADS, quantised, said, told
from benchmarks.peer import build
from quant.corpora.corpora import SHIPPED
from quant.report.json_file import load
from tests.quant.golden.printed import Printed, ours, read, unlike
from tests.quant.golden.tiny import TINY

FLOORS = (16, 24)


@dataclass(frozen=True, slots=True)
class Case:
    """A base and a quant on a text; how it is cut and decoded is said in both programs' words."""

    name: str
    base: Path
    quant: Path
    text: Path
    n_ctx: int
    n_batch: int
    n_ubatch: int
    chunks: int

    @property
    def peers(self) -> tuple[str, ...]:
        """As llama-perplexity is told."""
        sizes = ("-c", str(self.n_ctx), "-b", str(self.n_batch), "-ub", str(self.n_ubatch))
        return (*sizes, "--chunks", str(self.chunks))

    @property
    def our(self) -> tuple[str, ...]:
        """As `quant compare` is told."""
        return (
            *("--corpus", str(self.text), "--n-ctx", str(self.n_ctx)),
            *("--n-batch", str(self.n_batch), "--n-ubatch", str(self.n_ubatch)),
            *("--chunks", str(self.chunks), "--threads", str(THREADS), "--no-speeds"),
        )


def cases(programs: Path, folder: Path) -> Iterator[Case]:
    """A real model, and tiny ones."""
    models, text = quantised(programs, folder), SHIPPED["code"][1]
    for name in ("Q8_0", "Q2_K"):
        yield Case(f"SmolLM2 {name}", models["F16"], models[name], text, 512, 2048, 512, 5)
    for tiny in TINY:
        files = tiny.write_base(folder), tiny.write_quant(folder), tiny.write_text(folder)
        sizes = tiny.n_ctx, tiny.n_batch, tiny.n_ubatch, tiny.chunks
        yield Case(f"tiny, {tiny.name} vocabulary", *files, *sizes)


def compared(case: Case, folder: Path, logits: Path, floor: int) -> Printed:
    """The base's file, written; then our numbers against it."""
    command = [sys.executable, "-m", "quant", "compare", str(case.base)]
    more = ["--floor", str(floor), "--logits", str(logits), "--records", str(folder / "records")]
    said([*command, *case.our, *more])
    said([*command, str(case.quant), *case.our, *more, "--out", str(folder / "report")])
    (comparison,) = load(folder / "report" / "report.json").comparisons
    (loss,) = comparison.quants
    return ours(loss)


def main() -> None:
    """Print a line per case and floor."""
    programs, problems = build(Path(sys.argv[1]).resolve()), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in cases(programs, folder):
            theirs = folder / "theirs.kld"
            told(programs, case.base, theirs, "-f", str(case.text), *case.peers)
            for floor in FLOORS:
                logits = folder / "ours.kld"
                mine = compared(case, folder, logits, floor)
                printed = read(told(programs, case.quant, logits, "--kl-divergence", *case.peers))
                differing = unlike(mine, printed, same=True)
                same = filecmp.cmp(logits, theirs, shallow=False)
                problems += bool(differing) + (floor == FLOORS[0] and not same)
                print(
                    f"{case.name}, floor -{floor}: {len(printed)} statistics, "
                    f"{len(differing)} differ; mean KLD {printed['Mean KLD'][0]}; the file is "
                    f"{'the same as' if same else 'another than'} llama-perplexity's"
                )
                for what, (found, wanted) in differing.items():
                    print(f"    {what}: {' ± '.join(found)}, not {' ± '.join(wanted)}")
                logits.unlink()
            theirs.unlink()
    sys.exit(problems > 0)


if __name__ == "__main__":
    main()
