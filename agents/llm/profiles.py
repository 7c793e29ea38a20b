"""Model profiles: the address, prices and limits of each available model. They are stored in one TOML file, which never contains keys.

[profiles.fast]
kind = "openai"
base_url = "https://api.example.com/v1"
model = "some-model"
api_key_env = "EXAMPLE_API_KEY"          # name of the variable; its value is read at each call
prices = { input = 1.25, cached_input = 0.125, output = 10.0 }   # dollars per million tokens
limits = { concurrency = 4, requests_per_minute = 60 }
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from agents.llm.messages import Usage

ROOT = Path(__file__).resolve().parents[2]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
RESERVED = ("built-in", "landscape")  # values that may be given instead of a profile, for a role or in the arena


class ProfilesUnusable(ValueError):
    """Raised if the profiles file cannot be used. The message says where, why, and what to do."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prices(_Table):
    """Dollars per million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)  # None: same as `input`
    cache_write: float | None = Field(default=None, ge=0)  # None: same as `input`

    def dollars(self, usage: Usage) -> float:
        read = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        plain = max(usage.input_tokens - usage.cached_tokens - usage.cache_written_tokens, 0)
        total = plain * self.input + usage.cached_tokens * read + usage.cache_written_tokens * written + usage.output_tokens * self.output
        return total / 1e6


class Limits(_Table):
    """Limits on one process's requests to the endpoint and on its waiting times."""

    concurrency: int = Field(default=8, ge=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    connect_seconds: float = Field(default=10, gt=0)
    read_seconds: float = Field(default=300, gt=0)  # maximum silence in seconds; a reasoning model may stay silent for minutes
    total_seconds: float = Field(default=1800, gt=0)  # maximum duration of one exchange, from sending the request to the last byte of the reply
    retries: int = Field(default=5, ge=0)  # number of retries after the first attempt


class ServerProfile(_Table):
    """Settings common to both protocols."""

    kind: str
    base_url: str
    model: str = Field(min_length=1)
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")  # null: the server requires no key
    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)  # upper limit on the length of a reply, even if a request specifies more
    context_tokens: int | None = Field(default=None, ge=1)  # limit on prompt and reply together; None: known only to the server
    prices: Prices | None = None
    limits: Limits = Limits()
    body: dict[str, Any] = Field(default_factory=dict)  # additional request fields, such as reasoning_effort

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError as error:
            raise ValueError(f"is not an address: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError('must begin with http:// or https:// and a host, such as "https://api.example.com/v1"')
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("may contain no user, password, query or fragment: a key goes into the environment variable that api_key_env names")
        for end in ("/chat/completions", "/messages"):
            if parts.path.rstrip("/").endswith(end):
                raise ValueError(f"ends with {end}, which the client adds: leave that part out")
        return value.rstrip("/")

    @field_validator("body")
    @classmethod
    def _ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        ours = sorted({"messages", "model", "stream", "system", "n"} & value.keys())
        if ours:
            raise ValueError(f"may not contain {', '.join(ours)}: the client sets that")
        return value


class OpenAIProfile(ServerProfile):
    """Any server with OpenAI's chat completions API: OpenAI, vLLM, SGLang, Ollama, DeepSeek, gateways."""

    kind: Literal["openai"]


class AnthropicProfile(ServerProfile):
    """Anthropic's Messages API, or a compatible gateway."""

    kind: Literal["anthropic"]


class MailboxProfile(_Table):
    """A person answers. Each request waits as a file and on a web page until somebody adds a reply."""

    kind: Literal["mailbox"]
    prices: Prices | None = None  # prices of the model that the person's chat uses; without them, the cost is unknown
    tokenizer: str | None = None  # that model's tokenizer.json, relative to the profiles file; without it, tokens are estimated


class CassetteProfile(_Table):
    """A recording. `record`: the profile that answers requests missing from the recording; its replies are appended to the file."""

    kind: Literal["cassette"]
    file: str = Field(min_length=1)  # relative to the profiles file
    record: str | None = None


Profile = Annotated[OpenAIProfile | AnthropicProfile | MailboxProfile | CassetteProfile, Field(discriminator="kind")]
KINDS = {kind: cls for cls in get_args(get_args(Profile)[0]) for kind in get_args(cls.model_fields["kind"].annotation)}
_PROFILE: TypeAdapter[Any] = TypeAdapter(Profile)


def data_dir(environment: Mapping[str, str]) -> Path:
    """Returns `DATA_DIR`, by default the folder `.data` next to the packages. The web application uses the same folder."""
    return Path(environment.get("DATA_DIR") or ROOT / ".data").expanduser().absolute()


def profiles_file(environment: Mapping[str, str]) -> Path | None:
    """Returns the path of the profiles file: `STITCHWORK_LLM_PROFILES`, or `DATA_DIR/llm.toml` if it exists."""
    named = environment.get("STITCHWORK_LLM_PROFILES")
    if named:
        return Path(named).expanduser().absolute()
    usual = data_dir(environment) / "llm.toml"
    return usual if usual.exists() else None


def read_profiles(path: Path) -> dict[str, Any]:
    """Returns the profiles, keyed by name. Raises `ProfilesUnusable` with a list of all problems in the file."""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise ProfilesUnusable(f"{path}: there is no such file; create it, or correct STITCHWORK_LLM_PROFILES") from None
    except UnicodeDecodeError as error:
        raise ProfilesUnusable(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8 text") from None
    except OSError as error:
        raise ProfilesUnusable(f"{path}: it cannot be read ({error.strerror}); correct its permissions, or STITCHWORK_LLM_PROFILES") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfilesUnusable(f"{path}: it is not TOML: {error}; texts need quotes, and a table begins with [profiles.NAME]") from None
    profiles, problems = _read(tables)
    if problems:
        raise ProfilesUnusable(f"{path}: " + "\n".join(problems))
    return profiles


def key_variables(environment: Mapping[str, str]) -> frozenset[str]:
    """Returns the names of the environment variables that contain keys, so that processes that don't need keys can be started without them. If the
    file has errors, whatever can be read is still used."""
    path = profiles_file(environment)
    try:
        profiles = tomllib.loads(path.read_text()).get("profiles") if path else None
    except (OSError, ValueError):
        return frozenset()
    tables = profiles.values() if isinstance(profiles, dict) else ()
    names = (table.get("api_key_env") for table in tables if isinstance(table, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _read(tables: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    profiles: dict[str, Any] = {}
    problems = [f"[{name}]: there is no such table; a model is described under [profiles.NAME]" for name in tables if name != "profiles"]
    given = tables.get("profiles", {})
    if not isinstance(given, dict):
        return {}, [*problems, 'key profiles: it must be a table; write [profiles.NAME] and below it kind = "openai"']
    for name, table in given.items():
        place = f"[profiles.{name}]"
        problem = _problem_of_name(name) or ("it must be a table" if not isinstance(table, dict) else "")
        if problem:
            problems.append(f"{place}: {problem}")
            continue
        try:
            profiles[name] = _PROFILE.validate_python(table)
        except ValidationError as error:
            problems.extend(_problems(name, table, error))
    for name, profile in profiles.items():
        record = getattr(profile, "record", None)
        dead = record is not None and (record not in profiles or profiles[record].kind == "cassette")
        if dead and not problems:  # otherwise, the profile it names may be one of the faulty ones
            problems.append(f"[profiles.{name}], key record: {record!r} is not another profile that can be asked; name one that is not a cassette")
    return profiles, problems


def _problem_of_name(name: str) -> str:
    if name in RESERVED:
        return f"the name {name!r} is reserved; choose another"
    try:
        TypeAdapter(Annotated[str, Field(pattern=NAME)]).validate_python(name)
    except ValidationError:
        return "a name has up to 64 letters, digits, dots, dashes and underscores; choose another"
    return ""


def _problems(name: str, table: dict[str, Any], error: ValidationError) -> Iterator[str]:
    for found in error.errors(include_url=False):
        path = [str(part) for part in found["loc"] if str(part) not in KINDS]
        kind = table.get("kind")
        if found["type"] in ("union_tag_not_found", "union_tag_invalid"):
            said = "is missing" if kind is None else f"is {kind!r}, which is none of ours"
            yield f"[profiles.{name}], key kind: it {said}; write one of {', '.join(f'{k!r}' for k in KINDS)}"
            continue
        place = f"[{'.'.join(['profiles', name, *path[:-1]])}], key {path[-1] if path else '?'}"
        yield f"{place}: {_cause(found, table, path, KINDS.get(str(kind)))}"


def _cause(found: Any, table: dict[str, Any], path: list[str], kind: Any) -> str:
    key = path[-1] if path else ""
    if found["type"] == "missing":
        return f"it is missing; add {key} = ..."
    if found["type"] == "extra_forbidden":
        if "key" in key.lower():  # never print the value, which may be a key
            return "keys are not stored in this file; put the key into an environment variable and name it with api_key_env"
        known = _fields(kind, path[:-1])
        close = difflib.get_close_matches(key, known, 1)
        return f"there is no such key; {f'did you mean {close[0]}?' if close else 'leave it out (there are ' + ', '.join(known) + ')'}"
    if found["type"] == "value_error":
        return f"it {str(found['ctx']['error'])}"
    if key == "api_key_env":  # the user may have entered the key itself here
        return "it must be the name of an environment variable (letters, digits, underscores), not the key"
    said = found["msg"][0].lower() + found["msg"][1:]
    value = found.get("input")
    shown = f" (it is {value!r})" if isinstance(value, (int, float, bool)) or (isinstance(value, str) and len(value) <= 40) else ""
    return f"{said}{shown}; correct the value"


def _fields(kind: Any, path: list[str]) -> list[str]:
    tables: dict[str, Any] = {"prices": Prices, "limits": Limits}
    model = tables.get(path[0]) if path else kind
    return list(model.model_fields) if model is not None else []
