"""What llama-quantize makes and llama-perplexity prints, kept for the tests of `quant`.

`python -m benchmarks.capture_perplexity PEERS [OUTPUT]`: PEERS is the folder of `benchmarks.peer`,
OUTPUT the folder that is written to, `tests/quant/golden` by default. Quants of SmolLM2 are made by
llama-quantize and measured on the shipped texts; tiny random models leave whole files of logits.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import build
from quant.corpora.corpora import SHIPPED
from tests.quant.files import smollm_path
from tests.quant.golden.printed import BASE, Printed, read, system
from tests.quant.golden.tiny import TINY, Tiny

THREADS = 2
TYPES = ("Q8_0", "Q4_K_M", "Q2_K")
OUTPUT = Path(__file__).parent.parent / "tests" / "quant" / "golden"


@dataclass(frozen=True, slots=True)
class Run:
    """A text and how it is cut. In some, chunks do not fill a batch, or share out unevenly."""

    corpus: str
    n_ctx: int
    chunks: int


RUNS = (Run("code", 512, 5), Run("prose", 128, 6), Run("prose", 1024, 3))


def told(programs: Path, model: Path, logits: Path, *options: str) -> str:
    """What llama-perplexity says of a model with a file of base logits, written or read."""
    return said(
        [
            *(str(programs / "llama-perplexity"), "-m", str(model), "-t", str(THREADS)),
            *("--kl-divergence-base", str(logits), *options),
        ]
    )


def said(command: Sequence[str]) -> str:
    """All that a program says; it must end well."""
    ended = subprocess.run(command, capture_output=True, check=False)
    output = (ended.stdout + ended.stderr).decode("utf-8", "replace")
    if ended.returncode:
        raise SystemExit(f"{command[0]} ended with {ended.returncode}:\n{output[-2000:]}")
    return output


def quantised(programs: Path, folder: Path) -> dict[str, Path]:
    """F16 from the shipped model, and the quants of that, by their types."""
    made, source = {}, smollm_path()
    for name in ("F16", *TYPES):
        made[name] = folder / f"{name}.gguf"
        again = ("--allow-requantize",) if name == "F16" else ()
        files = (str(source), str(made[name]))
        said([str(programs / "llama-quantize"), *again, *files, name, str(THREADS)])
        source = made["F16"]
    return made


def measured(programs: Path, folder: Path, models: dict[str, Path], run: Run) -> dict[str, object]:
    """One run of the base, and one of each quant against it."""
    logits, text = folder / "base.kld", SHIPPED[run.corpus][1]
    cut = ("-c", str(run.n_ctx), "--chunks", str(run.chunks))
    base = read(told(programs, models["F16"], logits, "-f", str(text), *cut))
    quants: dict[str, Printed] = {
        name: read(told(programs, models[name], logits, "--kl-divergence", *cut[:2]))
        for name in TYPES
    }
    logits.unlink()
    return {
        "corpus": run.corpus,
        "text_sha256": hashlib.sha256(text.read_bytes()).hexdigest(),
        "n_ctx": run.n_ctx,
        "chunks": run.chunks,
        "base": {BASE: base[BASE]},
        "quants": quants,
    }


def capture_tiny(programs: Path, folder: Path, output: Path, tiny: Tiny) -> dict[str, object]:
    """The whole file of a tiny base, and what is said of another model against it."""
    base, quant = tiny.write_base(folder), tiny.write_quant(folder)
    text = tiny.write_text(folder)
    logits = output / f"{tiny.name}.kld"
    cut = ("-c", str(tiny.n_ctx), "-b", str(tiny.n_batch), "-ub", str(tiny.n_ubatch))
    printed = read(told(programs, base, logits, "-f", str(text), *cut))
    against = read(told(programs, quant, logits, "--kl-divergence", *cut))
    return {"base": {BASE: printed[BASE]}, "quant": against}


def main() -> None:
    """Write `smollm2.json`, `tiny.json`, and a file of logits per tiny model."""
    programs = build(Path(sys.argv[1]).resolve())
    output = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else OUTPUT
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = quantised(programs, folder)
        machine = system(told(programs, models["F16"], folder / "any.kld", *_short()))
        digests = {
            name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in models.items()
        }
        runs = [measured(programs, folder, models, run) for run in RUNS]
        shown = {"system": machine, "threads": THREADS, "models": digests, "runs": runs}
        write(output / "smollm2.json", shown)
        tiny = {one.name: capture_tiny(programs, folder, output, one) for one in TINY}
        write(output / "tiny.json", {"system": machine, "models": tiny})


def _short() -> tuple[str, ...]:
    return "-f", str(SHIPPED["prose"][1]), "-c", "16", "--chunks", "2"


def write(path: Path, document: dict[str, object]) -> None:
    """As JSON, for people to read and compare, too."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
