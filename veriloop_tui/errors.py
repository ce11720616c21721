"""The error tree. Every error carries its fields and reads as one sentence that says what to do.

This module imports nothing of the project. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from typing import ClassVar


class VeriloopError(Exception):
    """Base of every error that the program raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(VeriloopError):
    """The user asked for something that cannot be done as asked."""

    exit_code: ClassVar[int] = 2


class Cancelled(VeriloopError):
    """The user, or the declared wall time, asked for an end."""

    exit_code: ClassVar[int] = 130

    def __init__(self) -> None:
        super().__init__("The run was stopped.")


class SettingsError(UsageError):
    """A settings file or environment variable holds a value that cannot be used."""

    def __init__(self, source: str, key: str, problem: str) -> None:
        self.source, self.key, self.problem = source, key, problem
        super().__init__(f"{source}: {key}: {problem}. Correct the value and run again.")


class ContractError(UsageError):
    """`veriloop.toml` is missing or broken. `line` is 1-based, 0 where no line can be named."""

    def __init__(self, path: str, line: int, key: str, problem: str) -> None:
        self.path, self.line, self.key, self.problem = path, line, key, problem
        where = f"{path}:{line}" if line else path
        what = f"{key}: {problem}" if key else problem
        super().__init__(f"{where}: {what}")


class UntrustedContract(UsageError):
    """The contract's commands may not run: the user has not trusted this version of it."""

    def __init__(self, path: str, contract_hash: str, changed: bool) -> None:
        self.path, self.contract_hash, self.changed = path, contract_hash, changed
        why = "has changed since you trusted it" if changed else "has not been trusted yet"
        super().__init__(f"{path} {why}; read the commands it runs, then run `veriloop trust`.")


class SandboxUnavailable(UsageError):
    """The wanted isolation tier is not to be had on this machine."""

    def __init__(self, tier: str, problem: str, remedy: str) -> None:
        self.tier, self.problem, self.remedy = tier, problem, remedy
        super().__init__(f"The sandbox tier '{tier}' is not available: {problem}. {remedy}")


class StagingUnavailable(VeriloopError):
    """No rung of the staging ladder works here, or the rung in use failed."""

    def __init__(self, rung: str, problem: str) -> None:
        self.rung, self.problem = rung, problem
        super().__init__(f"The staging area ({rung}) could not be made: {problem}.")


class BaselineNotRankable(VeriloopError):
    """The workspace as it is cannot be ranked, so nothing can be compared with it."""

    exit_code: ClassVar[int] = 3

    def __init__(self, obligation: str, reason: str) -> None:
        self.obligation, self.reason = obligation, reason
        super().__init__(
            f"The workspace cannot be ranked: obligation '{obligation}' {reason}. "
            "Run its command by hand, repair what it shows, then try again."
        )


class EngineError(VeriloopError):
    """Anything that went wrong on the model side."""

    exit_code: ClassVar[int] = 4


class ModelNotFound(EngineError):
    """A model reference names nothing that is on this disk."""

    exit_code: ClassVar[int] = 2

    def __init__(self, ref: str, remedy: str) -> None:
        self.ref, self.remedy = ref, remedy
        super().__init__(f"The model '{ref}' is not on this disk. {remedy}")


class DownloadFailed(EngineError):
    """A file or a repository of the hub that could not be had."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"{what} was not fetched: {problem}.")


class ModelFileInvalid(EngineError):
    """A GGUF file that llama.cpp must not be given, or refused."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} cannot be used as a model: {problem}.")


class EngineStartFailed(EngineError):
    """The engine's process did not come up. `log` holds its last lines."""

    def __init__(self, problem: str, log: str) -> None:
        self.problem, self.log = problem, log
        tail = f" Its last words: {log}" if log else ""
        super().__init__(f"The engine did not start: {problem}.{tail}")


class EngineCrashed(EngineError):
    """The engine went away in the middle of a request."""

    def __init__(self, problem: str, log: str = "") -> None:
        self.problem, self.log = problem, log
        tail = f" Its last words: {log}" if log else ""
        super().__init__(
            f"The engine stopped: {problem}. Nothing was lost; run again to go on.{tail}"
        )


class EngineRefused(EngineError):
    """The engine answered a request with an error of its own."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(f"The engine refused the request ({status}): {message}")


class ServerFailed(EngineError):
    """Another server cannot be reached, fell silent, or sent what nobody can read."""

    def __init__(self, server: str, problem: str) -> None:
        self.server, self.problem = server, problem
        super().__init__(
            f"The server {server} cannot be used: {problem}. See that it runs, then run again."
        )


class ServerLacks(EngineError):
    """A request needs something that another server was seen not to offer."""

    def __init__(self, server: str, lacking: str, remedy: str) -> None:
        self.server, self.lacking, self.remedy = server, lacking, remedy
        super().__init__(f"The server {server} does not offer {lacking}; {remedy}.")


class ServerNotAllowed(UsageError):
    """The workspace's text would leave this machine, and the user has not agreed to that yet."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        super().__init__(
            f"The text of the workspace would be sent to {origin}; "
            f"agree to that once with `veriloop trust --server {origin}`."
        )


class DraftRefused(EngineError):
    """A draft head that does not fit its model, or that llama.cpp cannot run."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"The draft head is not used: {problem}.")


class ContextTooLong(EngineError):
    """A prompt has more tokens than the live context holds."""

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        self.n_prompt, self.n_ctx = n_prompt, n_ctx
        super().__init__(
            f"The prompt has {n_prompt} tokens and the context holds {n_ctx}; "
            "shorten the task, name fewer files, or load the model with a larger context."
        )


class TemplateError(EngineError):
    """The GGUF's chat template is missing, unsafe, or refuses these messages."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"The model's chat template cannot be used: {problem}.")


class StoreError(VeriloopError):
    """Anything that went wrong with snapshots, the ledger or promotion."""


class SnapshotRefused(StoreError):
    """A folder that must not, or cannot, be taken as a workspace."""

    exit_code: ClassVar[int] = 2

    def __init__(self, root: str, problem: str) -> None:
        self.root, self.problem = root, problem
        super().__init__(f"{root} cannot be used as a workspace: {problem}.")


class NothingRecorded(StoreError):
    """The workspace has no store yet."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"Nothing has been recorded for this workspace yet ({path} is missing); "
            "`veriloop verify` or a run makes the first record."
        )


class SnapshotNotFound(StoreError):
    """An id that no stored snapshot, bundle or attempt has."""

    exit_code: ClassVar[int] = 2

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(f"Nothing recorded has the id '{wanted}'; `veriloop log` lists the ids.")


class StoreDamaged(StoreError):
    """Stored bytes are not what was written. `where` names the table, row or segment."""

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"The store is damaged at {where}: {problem}. Run `veriloop fsck`.")


class WorkspaceBusy(StoreError):
    """Another instance of the program holds this workspace."""

    def __init__(self, root: str, holder: str) -> None:
        self.root, self.holder = root, holder
        super().__init__(f"{root} is in use by another VeriLoop ({holder}); end that one first.")


class StaleBase(StoreError):
    """The live files are no longer what the base snapshot holds; the candidate was not applied.

    `kept` are files outside the workspace that hold what the user's newer files took the place of.
    """

    def __init__(self, paths: tuple[str, ...], kept: tuple[str, ...] = ()) -> None:
        self.paths, self.kept = paths, kept
        saved = f" What was there before is kept in {', '.join(kept)}." if kept else ""
        where = f" ({', '.join(paths[:5])})" if paths else ""
        super().__init__(f"The workspace changed meanwhile{where}.{saved}")


class PromotionUnsettled(StoreError):
    """A promotion could be neither wholly finished nor wholly taken back; its journal is kept."""

    def __init__(self, root: str, problem: str) -> None:
        self.root, self.problem = root, problem
        super().__init__(
            f"A change to {root} was broken off and could not be settled: {problem}. "
            "No bytes are lost; remove the cause, then start VeriLoop there again to finish."
        )


class PromotionFailed(StoreError):
    """The change could not be written; the workspace is as it was."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"The change could not be written to {path}: {problem}. Nothing changed.")


class InvalidEdit(VeriloopError):
    """An answer of the model that is not a candidate: it becomes evidence, it is never run.

    `nearest` is the closest text in the file where a SEARCH part did not match, else empty.
    """

    def __init__(self, problem: str, path: str = "", nearest: str = "") -> None:
        self.problem, self.path, self.nearest = problem, path, nearest
        super().__init__(f"{path}: {problem}" if path else problem)


class QuantError(VeriloopError):
    """Anything that went wrong with making or comparing quants."""


class QuantNotMade(QuantError):
    """A quant was not made; nothing stands under its name. `log` holds llama.cpp's last words."""

    def __init__(self, path: str, problem: str, log: str = "") -> None:
        self.path, self.problem, self.log = path, problem, log
        tail = f" llama.cpp said: {log}" if log else ""
        super().__init__(f"{path} was not made: {problem}.{tail}")


class DiskTooSmall(QuantError):
    """A disk has less room than what is to be written; sizes in bytes."""

    exit_code: ClassVar[int] = 2

    def __init__(self, folder: str, needed: int, free: int) -> None:
        self.folder, self.needed, self.free = folder, needed, free
        super().__init__(
            f"{folder} has {free / 2**30:.2f} GiB free and {needed / 2**30:.2f} GiB are needed; "
            "free some space or name another folder."
        )


class ImatrixInvalid(QuantError):
    """A file that is not an importance matrix, or a damaged one."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} cannot be used as an importance matrix: {problem}.")


class CorpusInvalid(QuantError):
    """A text to measure on that cannot be used."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} cannot be used as a corpus: {problem}.")


class VocabularyDiffers(QuantError):
    """A quant that has other tokens than the base, or cuts text into others."""

    exit_code: ClassVar[int] = 2

    def __init__(self, quant: str, problem: str) -> None:
        self.quant, self.problem = quant, problem
        super().__init__(
            f"{quant} has another vocabulary than the base: {problem}; name quants of this base."
        )


class PassFailed(QuantError):
    """The process of a model could not decode, or ended while it was needed."""

    def __init__(self, model: str, problem: str, log: str = "") -> None:
        self.model, self.problem, self.log = model, problem, log
        tail = f" llama.cpp said: {log}" if log else ""
        super().__init__(f"{model} could not be run: {problem}.{tail}")


class BaseNotFinite(QuantError):
    """The base's logits hold NaN or an infinity, so nothing can be compared with it.

    `chunk` counts from 1, `position` from 0.
    """

    def __init__(self, base: str, chunk: int, position: int) -> None:
        self.base, self.chunk, self.position = base, chunk, position
        super().__init__(
            f"The base {base} has logits that are not finite in chunk {chunk} at position "
            f"{position}; use another file of it, or another text."
        )


class LogitsFileInvalid(QuantError):
    """A file of base logits that cannot be used for what is to be measured."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} cannot be used as base logits: {problem}.")


class MemoryTooSmall(QuantError):
    """A machine has less memory than a comparison takes; sizes in bytes."""

    exit_code: ClassVar[int] = 2

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(
            f"The comparison takes about {needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB of "
            "memory are free; take a smaller --n-ctx, --n-batch or --n-ubatch, or --streams 1."
        )


class RecordInvalid(QuantError):
    """Measurements in a folder that are damaged, or that another process is adding to."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"The measurements in {path} cannot be used: {problem}.")


class StudyInvalid(QuantError):
    """A matrix file of a study that cannot be used."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} cannot be used as a study: {problem}.")


class TaskNotRun(QuantError):
    """A task of a suite could not be run with a model; the runs before it are kept."""

    def __init__(self, task: str, model: str, problem: str) -> None:
        self.task, self.model, self.problem = task, model, problem
        super().__init__(
            f"The task '{task}' could not be run with {model}: {problem} "
            "The runs before it are kept; run again to go on."
        )


class LibraryMissing(UsageError):
    """A library of an optional part is not installed."""

    def __init__(self, library: str, purpose: str, install: str) -> None:
        self.library, self.purpose, self.install = library, purpose, install
        super().__init__(f"{library} is needed for {purpose} and is not installed; run: {install}")
