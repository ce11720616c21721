"""From settings to a decoder: weights, context, draft head, and the pace of speculation."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import psutil

from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts
from veriloop_tui.engine.decode import Decoder, check_fits
from veriloop_tui.engine.gguf_facts import GGUFFacts, check_loadable, file_digest, read_facts
from veriloop_tui.engine.head import Head, check_head
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.llama import Model, silence_logs
from veriloop_tui.engine.memory import Cancelled, Memory, Shape
from veriloop_tui.engine.native import VERSION
from veriloop_tui.engine.pace import CostCurve, Pace
from veriloop_tui.engine.resume import restore, save
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.engine.template import ChatTemplate
from veriloop_tui.engine.transcript import NOTHING
from veriloop_tui.errors import DraftRefused, EngineError

DEFAULT_N_CTX: Final = 8_192
_PARALLEL: Final = 8
_CALIBRATION_SECONDS: Final = 1.0
_CALIBRATED: Final = (1, 2, 3, 5, 9, 17)

Keep = Callable[[], bool]


class Loaded:
    """A model ready to answer."""

    def __init__(self, settings: LoadSettings, keep_loading: Keep) -> None:
        """Check the headers, then load. Raises `ModelFileInvalid`, `TemplateError`."""
        silence_logs()
        header = read_facts(settings.model)
        check_loadable(header)
        self.model = Model(
            settings.model, settings, keep_loading, heads=_own_heads(settings, header)
        )
        self._head_model: Model | None = None
        self.decoder, notices = self._decoder(settings, header, keep_loading)
        vocabulary = self.model.vocabulary
        self.template = ChatTemplate(header.chat_template, vocabulary.bos, vocabulary.eos)
        self.decoder.notices += notices
        self._facts = _facts(header, self.decoder.memory.n_ctx)
        self._settings = settings
        self._binding = _binding(self._facts, settings, self.memory)
        self._transcript = NOTHING
        if settings.state_file is not None:
            self._transcript = restore(self.decoder, self._binding, settings.state_file)

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model, with what was switched off since it was loaded."""
        return replace(self._facts, notices=tuple(self.decoder.notices))

    @property
    def memory(self) -> Memory:
        """The context that requests are evaluated in."""
        return self.decoder.memory

    def prepare(self, request: ChatRequest) -> Job:
        """The job that `request` asks for. Raises `TemplateError`, `ContextTooLong`."""
        text = self.template.render(request.messages, request.continue_final_message)
        prompt = tuple(self.model.vocabulary.tokenise(text))
        check_fits(prompt, self.memory.n_ctx)
        return Job(
            prompt,
            text,
            request.sampling,
            request.seed,
            request.max_tokens,
            request.stop,
            request.n,
        )

    def run(self, job: Job, cancelled: Cancelled) -> Iterator[ChatEvent]:
        """The events of a job; for the thread that loaded the model. Raises `EngineRefused`."""
        vocabulary = self.model.vocabulary
        spelled = self._transcript.respell(job, vocabulary.parse, vocabulary.is_special)
        if len(spelled.prompt) < self.memory.n_ctx:
            job = spelled
        yield from self.decoder.run(job, cancelled)
        answer = self.memory.tokens[len(job.prompt) :]
        self._transcript = self._transcript.then(
            job, ((token, vocabulary.piece(token)) for token in answer)
        )

    def keep(self) -> None:
        """Write the evaluated context to the settings' state file, if there is one."""
        path = self._settings.state_file
        if path is None:
            return
        try:
            save(self.decoder, self._transcript, self._binding, path)
        except OSError as problem:
            sys.stderr.write(f"The context was not kept: {problem.strerror or problem}.\n")

    def _decoder(
        self, settings: LoadSettings, header: GGUFFacts, keep_loading: Keep
    ) -> tuple[Decoder, list[str]]:
        n_ctx = settings.n_ctx or min(header.context_length or DEFAULT_N_CTX, DEFAULT_N_CTX)
        drafts = settings.speculation != "off"
        shape = Shape(
            n_ctx=n_ctx,
            threads=settings.threads or usable_cores(),
            sequences=settings.parallel or (1 if self.model.recurrent and drafts else _PARALLEL),
            rollback=settings.draft_max if drafts else 0,
        )
        memory = Memory(self.model, settings, shape)
        decoder = Decoder(memory, self.model.vocabulary, lookup=settings.lookup)
        notices: list[str] = []
        if drafts:
            try:
                decoder.head = self._head(settings, header, memory, shape, keep_loading)
            except DraftRefused as refused:
                notices.append(str(refused))
            decoder.pace = self._pace(settings, decoder, notices)
        return decoder, notices

    def _head(
        self,
        settings: LoadSettings,
        header: GGUFFacts,
        memory: Memory,
        shape: Shape,
        keep_loading: Keep,
    ) -> Head | None:
        source = self.model
        if settings.draft is not None:
            try:
                read_facts(settings.draft)
                source = Model(settings.draft, settings, keep_loading, heads=True)
            except EngineError as problem:
                raise DraftRefused(str(problem).rstrip(".")) from problem
        elif not source.draft_layers:
            return None
        try:
            check_head(header.architecture, self.model, source)
            head = Head(source, memory, settings, shape)
        except DraftRefused:
            if source is not self.model:
                source.close()
            raise
        if source is not self.model:
            self._head_model = source
        return head

    def _pace(self, settings: LoadSettings, decoder: Decoder, notices: list[str]) -> Pace | None:
        """The pace, if there is anything to draft from and it can pay here."""
        longest = min(settings.draft_max, decoder.memory.rollback)
        if decoder.head is not None and decoder.head.longest is not None and not settings.lookup:
            longest = min(longest, decoder.head.longest)
        if longest < 1 or (decoder.head is None and not settings.lookup):
            return None
        if settings.speculation == "always":
            return Pace(CostCurve(), longest, fixed=True)
        pace = Pace(CostCurve(calibrate(decoder.memory, longest + 1)), longest)
        if pace.hopeless():
            one, most = pace.cost.at(1), pace.cost.at(longest + 1)
            notices.append(
                f"Speculation is off: a batch of {longest + 1} tokens takes {most / one:.1f} times "
                "as long as one token here, so drafting cannot pay."
            )
            if decoder.head is not None:
                decoder.head.close()
                decoder.head = None
                decoder.memory.emit_hidden(False)
            return None
        return pace

    def close(self) -> None:
        """Free the native memory."""
        self.decoder.close()
        if self._head_model is not None:
            self._head_model.close()
        self.model.close()


def calibrate(
    memory: Memory, most: int, clock: Callable[[], float] = time.perf_counter
) -> list[tuple[int, float]]:
    """Milliseconds that batches of up to `most` tokens take, in about a second at most.

    The memory is empty before and after.
    """
    begun, measured = clock(), []
    sizes = [size for size in _CALIBRATED if size < most] + [most]
    memory.advance((0,))  # The first evaluation makes the graph.
    for size in sizes:
        times: list[float] = []
        for _ in range(3):
            if times and clock() - begun > _CALIBRATION_SECONDS:
                break
            before = clock()
            memory.advance((0,) * size)
            memory.logits(size - 1)[0]
            times.append((clock() - before) * 1e3)
        measured.append((size, min(times)))
        if clock() - begun > _CALIBRATION_SECONDS:
            break
    memory.clear()
    return measured


def usable_cores() -> int:
    """Physical cores, but no more than this process may run on (a container may have fewer)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(psutil.cpu_count(logical=False) or 1, allowed or 1)


def _binding(facts: ModelFacts, settings: LoadSettings, memory: Memory) -> str:
    """Everything that must be the same for a saved context to mean the same."""
    draft = file_digest(read_facts(settings.draft)) if settings.draft is not None else ""
    return json.dumps(
        [
            VERSION,
            facts.file_digest,
            draft,
            facts.template_hash,
            memory.n_ctx,
            memory.sequences,
            memory.rollback,
            settings.type_k,
            settings.type_v,
            settings.flash_attention,
            platform.machine(),
        ]
    )


def _own_heads(settings: LoadSettings, header: GGUFFacts) -> bool:
    return (
        bool(header.nextn_predict_layers)
        and settings.draft is None
        and settings.speculation != "off"
    )


def _facts(header: GGUFFacts, n_ctx: int) -> ModelFacts:
    return ModelFacts(
        name=header.name,
        architecture=header.architecture,
        path=header.path,
        file_size=header.file_size,
        parameters=header.parameters,
        quant=header.quant,
        bpw=header.bpw,
        n_ctx=n_ctx,
        file_digest=file_digest(header),
        template_hash=header.template_hash,
    )
