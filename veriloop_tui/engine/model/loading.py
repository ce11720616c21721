"""A model loaded by settings: what is known of it, jobs, and the context that outlives it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from veriloop_tui.core.chat import ChatEvent, ChatRequest, ModelFacts
from veriloop_tui.engine.answer.prepare import prepare
from veriloop_tui.engine.answer.template import ChatTemplate
from veriloop_tui.engine.decoding.decode import Decoder
from veriloop_tui.engine.decoding.llama import Model, silence_logs
from veriloop_tui.engine.decoding.memory import Cancelled, Memory
from veriloop_tui.engine.decoding.native import VERSION
from veriloop_tui.engine.decoding.resume import restore, save
from veriloop_tui.engine.decoding.transcript import NOTHING
from veriloop_tui.engine.gguf.facts import GGUFFacts, check_loadable, file_digest, read_facts
from veriloop_tui.engine.job import Job
from veriloop_tui.engine.model.assembly import assemble
from veriloop_tui.engine.settings import LoadSettings
from veriloop_tui.errors import EngineError

_RESTING: Final = (
    "Speculation rests: too few drafted tokens were accepted to be faster than plain decoding; it "
    "is tried again now and then."
)

Keep = Callable[[], bool]


class Loaded:
    """A model ready to answer."""

    def __init__(self, settings: LoadSettings, keep_loading: Keep) -> None:
        """Check the headers, then load. Raises `ModelFileInvalid`, `TemplateError`."""
        silence_logs()
        header = read_facts(settings.model)
        check_loadable(header)
        self._parts = assemble(header, settings, keep_loading)
        vocabulary = self.model.vocabulary
        self.template = ChatTemplate(header.chat_template, vocabulary.bos, vocabulary.eos)
        self.decoder.notices += self._parts.notices
        self._facts = _facts(header, self.decoder.memory.n_ctx)
        self._settings = settings
        self._binding = _binding(self._facts, self._parts.draft, settings, self.memory)
        self._transcript = NOTHING
        if settings.state_file is not None:
            self._transcript = restore(self.decoder, self._binding, settings.state_file)

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model, with what was switched off since it was loaded."""
        pace = self.decoder.pace
        resting = (_RESTING,) if pace is not None and pace.resting else ()
        return replace(self._facts, notices=(*self.decoder.notices, *resting))

    @property
    def model(self) -> Model:
        """The weights, and their vocabulary."""
        return self._parts.model

    @property
    def decoder(self) -> Decoder:
        """What answers."""
        return self._parts.decoder

    @property
    def memory(self) -> Memory:
        """The context that requests are evaluated in."""
        return self.decoder.memory

    def prepare(self, request: ChatRequest) -> Job:
        """The job that `request` asks for. Raises what `prepare.prepare` raises."""
        return prepare(request, self.template, self.model.vocabulary.tokenise, self.memory.n_ctx)

    def run(self, job: Job, cancelled: Cancelled) -> Iterator[ChatEvent]:
        """The events of a job; for the thread that loaded the model. Raises `EngineRefused`."""
        vocabulary = self.model.vocabulary
        spelled = self._transcript.respell(job, vocabulary.parse, vocabulary.is_special)
        if len(spelled.prompt) < self.memory.n_ctx:
            job = spelled
        yield from self.decoder.run(job, cancelled)
        held = self.memory.tokens
        if held[: len(job.prompt)] == job.prompt:
            # Otherwise it was cancelled before its prompt was in.
            answer = ((token, vocabulary.piece(token)) for token in held[len(job.prompt) :])
            self._transcript = self._transcript.then(job, answer)

    def keep(self) -> None:
        """Write the evaluated context to the settings' state file, if there is one."""
        path = self._settings.state_file
        if path is None:
            return
        try:
            save(self.decoder, self._transcript, self._binding, path)
        except (OSError, EngineError) as problem:
            # It only saves time, and the engine is about to end.
            sys.stderr.write(f"The context was not kept: {problem}\n")

    def close(self) -> None:
        """Free the native memory."""
        self._parts.close()


def _binding(
    facts: ModelFacts, draft: GGUFFacts | None, settings: LoadSettings, memory: Memory
) -> str:
    """Everything that must be the same for a saved context to mean the same."""
    return json.dumps(
        [
            VERSION,
            facts.file_digest,
            file_digest(draft) if draft is not None else "",
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
