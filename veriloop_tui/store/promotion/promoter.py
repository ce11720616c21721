"""Journalled promotion: a candidate's files enter the workspace all together, or not at all.

Order: stage, PREPARED, look again, exchange, sync, commit, look again, clean up. Up to the moment
when `commit` has returned, recovery restores the old bytes; from then on it finishes the new ones.

What moves besides the candidate's files: the mtime of each folder in which a name was exchanged,
created or removed (the kernel sets it, and build tools rely on that; it is never set back), and of
the workspace's root where the stage folder has to be there. An edited file is a new inode.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

from veriloop_tui.core.ports import Clock
from veriloop_tui.core.snapshot import Candidate, Entry, SnapshotId
from veriloop_tui.errors import PromotionFailed, PromotionUnsettled, StaleBase, StoreDamaged
from veriloop_tui.store.lock import WorkspaceLock
from veriloop_tui.store.promotion.beneath import Beneath
from veriloop_tui.store.promotion.exchange import PlainRenames, Renames, kernel_renames
from veriloop_tui.store.promotion.journal import Prepared, PromotionJournal, StagePlace, Staging
from veriloop_tui.store.promotion.prepare import Preparation, failing_at
from veriloop_tui.store.promotion.put_in import Exchange
from veriloop_tui.store.promotion.settle import Settlement
from veriloop_tui.store.promotion.stage_folder import StageFolder, choose_place

CONFLICTS_NAME = "conflicts"
NO_EXCHANGE = (
    "This file system cannot exchange two files in one go: a file you save in the very moment "
    "of a promotion may be overwritten."
)
NO_LEASES = (
    "This file system grants no leases: what an editor writes into a file in place in the very "
    "moment of its promotion may be missed."
)


@dataclass(frozen=True, slots=True)
class OpenStage:
    """The stage of one promotion and how files are exchanged with it."""

    promotion: str
    place: StagePlace
    folder: StageFolder
    renames: Renames


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What recovery found and did. `kept` are files in the conflict folder."""

    outcome: Literal["nothing-open", "rolled-back", "finished"]
    bundle_id: str
    paths: tuple[str, ...]
    kept: tuple[str, ...]


class JournalledPromoter:
    """Promotes candidates into the workspace at `root`, with journal and stage under `data`.

    `entry` gives the base's entry for a path, `committed` whether the ledger holds a bundle (it is
    asked after a crash, and when a commit raised). `notice` gets one sentence for each degraded
    mode or kept file. `step` is called with the name of each step as it has been done.
    """

    def __init__(
        self,
        root: Path,
        data: Path,
        *,
        entry: Callable[[SnapshotId, str], Entry | None],
        committed: Callable[[str], bool],
        lock: WorkspaceLock,
        clock: Clock,
        notice: Callable[[str], None],
        step: Callable[[str], None] = lambda name: None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
        kernel: Callable[[int], Renames | None] = kernel_renames,
    ) -> None:
        self._root, self._data = root, data
        self._entry, self._committed = entry, committed
        self._lock, self._clock = lock, clock
        self._notice, self._step = notice, step
        self._new_id, self._kernel = new_id, kernel
        self._journal = PromotionJournal(data)
        self._told: set[str] = set()

    def promote(
        self,
        candidate: Candidate,
        result: SnapshotId,
        bundle_id: str,
        commit: Callable[[], None],
    ) -> None:
        """See `core.ports.Promoter`. `result` is not needed: the candidate says what to write."""
        with self._lock:
            self._recover()
            if self._committed(bundle_id):
                raise PromotionFailed(bundle_id, "the ledger holds this bundle already")
            with failing_at(str(self._root)):
                opened = Beneath(self._root)
            with opened as beneath:
                stage = self._open_stage(beneath)
                prepared = self._prepare(candidate, bundle_id, beneath, stage)
                settlement = self._settlement(prepared, beneath, stage)
                try:
                    with ExitStack() as ending:
                        ending.callback(self._settle, prepared, settlement, stage.folder)
                        self._put_in(prepared, settlement, commit)
                except StaleBase as stale:
                    raise StaleBase(stale.paths, tuple(settlement.kept)) from None

    def recover(self) -> RecoveryReport:
        """Settle what a crash left: finish it if the ledger holds its bundle, else roll it back.

        To be called before the workspace is first scanned; may itself be broken off and called
        again. Raises `WorkspaceBusy`, `StoreDamaged`, `PromotionUnsettled`.
        """
        with self._lock:
            return self._recover()

    def _open_stage(self, beneath: Beneath) -> OpenStage:
        promotion = self._new_id()
        with failing_at(str(self._data)):
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = choose_place(self._data, beneath.root, promotion)
            self._journal.write(Staging(promotion, place))
        with ExitStack() as failed, failing_at("the stage folder"):
            failed.callback(self._journal.clear)
            self._step("journal opened")
            folder = StageFolder.make(place, self._data, self._root)
            failed.callback(folder.remove)
            self._step("stage made")
            renames = self._renames(folder)
            failed.pop_all()
        return OpenStage(promotion, place, folder, renames)

    def _prepare(
        self, candidate: Candidate, bundle_id: str, beneath: Beneath, stage: OpenStage
    ) -> Prepared:
        with ExitStack() as failed:
            failed.callback(self._journal.clear)
            failed.callback(stage.folder.remove)
            preparation = Preparation(
                beneath,
                stage.folder.fd,
                partial(self._entry, candidate.base),
                self._clock,
                self._step,
            )
            steps = preparation.steps(candidate)
            prepared = Prepared(stage.promotion, bundle_id, stage.place, steps)
            with failing_at(str(self._data)):
                self._journal.write(prepared)
                self._step("prepared")
            failed.pop_all()
        return prepared

    def _put_in(
        self, prepared: Prepared, settlement: Settlement, commit: Callable[[], None]
    ) -> None:
        """Check, exchange, check and commit, under leases on the files that are replaced."""
        with ExitStack() as leases:
            exchange = Exchange(settlement, prepared.steps, leases)
            unleased = exchange.check()
            if unleased:
                self._tell_once(NO_LEASES)
            exchange.apply()
            exchange.confirm()
            self._step("confirmed")
            commit()
            self._step("committed")
            if not self._committed(prepared.bundle):
                raise StoreDamaged("the ledger", f"it lost the bundle {prepared.bundle}")

    def _settle(self, prepared: Prepared, settlement: Settlement, folder: StageFolder) -> None:
        """The ledger alone says which way; what is left undone here is recovery's."""
        try:
            if self._committed(prepared.bundle):
                settlement.finish(prepared.steps)
            else:
                settlement.undo(prepared.steps)
            folder.remove()
            self._step("stage removed")
            self._journal.clear()
            self._step("journal cleared")
        except OSError as problem:
            raise PromotionUnsettled(str(self._root), str(problem)) from problem
        finally:
            folder.close()
            for path in settlement.returned:
                self._notice(f"{path} was being written while it was promoted; your version won.")
            for path in settlement.kept:
                self._notice(f"What a newer version of yours took the place of is kept in {path}.")

    def _recover(self) -> RecoveryReport:
        record = self._journal.read()
        try:
            match record:
                case None:
                    return RecoveryReport("nothing-open", "", (), ())
                case Staging():
                    self._drop_stage(record.stage)
                    return RecoveryReport("rolled-back", "", (), ())
                case Prepared():
                    return self._recover_prepared(record)
                case _:
                    assert_never(record)
        except OSError as problem:
            raise PromotionUnsettled(str(self._root), str(problem)) from problem

    def _recover_prepared(self, record: Prepared) -> RecoveryReport:
        finished = self._committed(record.bundle)
        paths = tuple(step.path for step in record.steps)
        kept: tuple[str, ...] = ()
        try:
            folder = StageFolder(record.stage, self._data, self._root)
        except FileNotFoundError:
            # The stage goes last, when everything else has been settled.
            self._journal.clear()
        else:
            with Beneath(self._root) as beneath:
                stage = OpenStage(record.promotion, record.stage, folder, self._renames(folder))
                settlement = self._settlement(record, beneath, stage)
                if not finished:
                    settlement.renew(record.steps, self._clock)
                self._settle(record, settlement, folder)
                kept = tuple(settlement.kept)
        return RecoveryReport("finished" if finished else "rolled-back", record.bundle, paths, kept)

    def _drop_stage(self, place: StagePlace) -> None:
        with suppress(FileNotFoundError):
            StageFolder(place, self._data, self._root).remove()
        self._step("stage removed")
        self._journal.clear()
        self._step("journal cleared")

    def _settlement(self, prepared: Prepared, beneath: Beneath, stage: OpenStage) -> Settlement:
        return Settlement(
            beneath,
            stage.folder.fd,
            stage.folder.path,
            stage.renames,
            self._data / CONFLICTS_NAME / prepared.promotion,
            self._step,
            self._clock.sleep,
        )

    def _renames(self, folder: StageFolder) -> Renames:
        renames = self._kernel(folder.fd)
        if renames is None:
            self._tell_once(NO_EXCHANGE)
            return PlainRenames(self._step)
        return renames

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._notice(text)
