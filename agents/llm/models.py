"""All models that this process knows, keyed by profile name; implements `agents.ports.ModelPort`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from agents.llm import mailbox
from agents.llm.call import OnDelta
from agents.llm.cassette import Cassette, Exchange
from agents.llm.errors import ModelFailure
from agents.llm.mailbox import FileMailbox, MailboxStore
from agents.llm.messages import Delta, Reply, Request
from agents.llm.profiles import CassetteProfile, MailboxProfile, ProfilesUnusable, ServerProfile, data_dir, profiles_file, read_profiles
from agents.llm.server import Server
from agents.llm.tokens import estimate_input, usage_of


class Models:
    """All models, keyed by profile name. The profiles file is reread whenever it changes, so a run that paused because of a faulty profile can resume
    once the file is fixed.

    `environment` is searched for keys at each call, so pass `os.environ` itself. If the file is missing or unusable, there are no models, and both
    `problem` and the `ModelFailure` that callers get say why.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        store: MailboxStore | None = None,  # None: files in DATA_DIR/mailbox
        transport: httpx.AsyncBaseTransport | None = None,  # None: the network
        wait: bool = True,  # wait for a person's reply; if false, leave the request in the mailbox and raise `Asked`
    ):
        self.environment = environment
        self.store = store or FileMailbox(data_dir(environment) / "mailbox")
        self.problem, self.wait = "", wait
        self._transport = transport
        self._profiles: dict[str, Any] = {}
        self._servers: dict[str, Server] = {}
        self._cassettes: dict[Path, Cassette] = {}
        self._read: tuple[Path | None, int, int] | None = None  # path, modification time and size of the file when it was read

    @property
    def file(self) -> Path | None:
        return profiles_file(self.environment)

    def profiles(self) -> dict[str, Any]:
        """Returns all profiles, keyed by name; the result is empty if the file has a `problem`."""
        path = self.file
        try:
            found = path.stat() if path else None
            state = (path, found.st_mtime_ns if found else 0, found.st_size if found else 0)
        except OSError:
            state = (path, 0, 0)
        if state != self._read:
            self._read, self.problem = state, ""
            try:
                profiles = read_profiles(path) if path else {}
            except ProfilesUnusable as error:
                profiles, self.problem = {}, str(error)
            self._servers = {name: server for name, server in self._servers.items() if profiles.get(name) == server.profile}
            self._profiles = profiles
        return self._profiles

    def known(self, profile: str) -> bool:
        return profile in self.profiles()

    def keeps(self, profile: str) -> bool:
        """Returns whether a request to this profile keeps waiting for its reply even if the run is interrupted. Such a request is never resent in a
        different form."""
        return isinstance(self.profiles().get(profile), MailboxProfile)

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        found = self._profile(profile)
        if isinstance(found, ServerProfile):
            return self.server(profile).estimate(request)
        if isinstance(found, CassetteProfile):
            recorded = self.cassette(found).look(request)
            if recorded is not None and recorded.estimate:
                return dict(recorded.estimate)
            if found.record is not None:
                return self.estimate(found.record, request)
            return {"calls": 1, "tokens": estimate_input(request) + request.max_tokens}
        return {"calls": 1}  # tokens read by a person are not counted

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: OnDelta) -> Reply:
        found = self._profile(profile)
        if isinstance(found, MailboxProfile):
            reply = await mailbox.ask(self.store, profile, request, key=key, run=run, on_delta=on_delta, wait=self.wait)
            return self._counted(found, request, reply)
        if isinstance(found, CassetteProfile):
            return await self._play(profile, found, request, key=key, run=run, on_delta=on_delta)
        return await self.server(profile).ask(request, on_delta)

    def server(self, name: str) -> Server:
        """Returns the client of an openai or anthropic profile; it remembers what its server rejects."""
        if name not in self._servers:
            self._servers[name] = Server(name, self._profile(name), self.environment, self._transport)
        return self._servers[name]

    def cassette(self, profile: CassetteProfile) -> Cassette:
        base = self.file.parent if self.file else Path()
        path = base / Path(profile.file).expanduser()
        if path not in self._cassettes:
            self._cassettes[path] = Cassette(path)
        self._cassettes[path].refresh()
        return self._cassettes[path]

    async def _play(self, name: str, profile: CassetteProfile, request: Request, *, key: str, run: str, on_delta: OnDelta) -> Reply:
        cassette = self.cassette(profile)
        recorded = cassette.find(name, request, key=key, run=run)
        if recorded is not None:
            if recorded.reply.reasoning:
                await on_delta(Delta(kind="reasoning", text=recorded.reply.reasoning))
            await on_delta(Delta(text=recorded.reply.text))
            return recorded.reply
        if profile.record is None:
            raise cassette.missing(name, request)
        estimate = self.estimate(profile.record, request)
        reply = await self.ask(profile.record, request, key=key, run=run, on_delta=on_delta)
        cassette.add(Exchange(profile=profile.record, run=run, key=key, request=request, estimate=estimate, reply=reply))
        return reply

    def _counted(self, profile: MailboxProfile, request: Request, reply: Reply) -> Reply:
        """Returns the reply with the number of tokens that the chat used, which is usually an estimate."""
        base = self.file.parent if self.file else Path()
        usage, counted = usage_of(request, reply.text, base / Path(profile.tokenizer).expanduser() if profile.tokenizer else None)
        return reply.model_copy(update={"usage": usage, "counted": counted, "dollars": profile.prices.dollars(usage) if profile.prices else None})

    def _profile(self, name: str) -> Any:
        found = self.profiles().get(name)
        if found is not None:
            return found
        if self.problem:
            raise ModelFailure("configuration", f"the profiles cannot be used: {self.problem}", "correct the file, then resume", attempts=0)
        if self.file is None:
            hint = "write llm.toml into DATA_DIR (docs/how-to/language-models.md), or set STITCHWORK_LLM_PROFILES to its path"
            raise ModelFailure("configuration", f"there is no profile {name}: no model is configured here", hint, attempts=0)
        names = ", ".join(sorted(self.profiles())) or "none"
        hint = f"add [profiles.{name}] to {self.file}, or choose another model"
        raise ModelFailure("configuration", f"there is no profile {name} (there are: {names})", hint, attempts=0)


def open_models(environment: Mapping[str, str], store: MailboxStore | None = None, *, wait: bool = True) -> Models:
    """Returns the models described by `STITCHWORK_LLM_PROFILES` (or by `DATA_DIR/llm.toml` if that is not set). Never raises: see
    `Models.problem`."""
    return Models(environment, store, wait=wait)
