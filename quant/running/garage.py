"""The models that are loaded: all at once, or one after the other where memory is short."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from quant.running.order import Open, Speed
from quant.running.passes import Pass
from quant.study.sidecar import Speeds
from veriloop_tui.core.ports import Cancel


@dataclass(slots=True)
class _Loaded:
    run: Pass
    opened: Open | None = None


class Garage:
    """Loads models when they are asked for; a context manager. Several may be asked for at once."""

    def __init__(self, shared: int, gpu_layers: int, cancel: Cancel) -> None:
        """`shared` is the descriptor of shared memory, `gpu_layers` −1 for all."""
        self._shared, self._gpu_layers, self._cancel = shared, gpu_layers, cancel
        self._loaded: dict[str, _Loaded] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def clear(self, keep: str = "") -> None:
        """End all models but the one called `keep`."""
        for key in [key for key in self._loaded if key != keep]:
            self._loaded.pop(key).run.end()

    def opened(self, key: str, model: Path, order: Open) -> Pass:
        """The model called `key` with its contexts as ordered.

        Raises `EngineStartFailed`, `PassFailed`, `Cancelled`.
        """
        loaded = self._load(key, model)
        if loaded.opened != order:
            loaded.run.open(order)
            loaded.opened = order
        return loaded.run

    def speeds(self, key: str, model: Path, order: Speed) -> Speeds:
        """What the model called `key` does alone. Raises as `opened` does."""
        read, written = self._load(key, model).run.speeds(order)
        return Speeds(tuple(read), tuple(written))

    def _load(self, key: str, model: Path) -> _Loaded:
        if key not in self._loaded:
            self._loaded[key] = _Loaded(Pass(model, self._gpu_layers, self._shared, self._cancel))
        return self._loaded[key]
