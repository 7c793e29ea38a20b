"""Content-addressed storage, one store per team, with a put/get interface. Bytes are stored in chunks. An object store could replace this module."""

from __future__ import annotations

import uuid

from django.db import transaction

from agents.events import ArtefactRef
from verifier.source import sha256
from webapp.runs.models import Artefact, ArtefactChunk

CHUNK_BYTES = 1024 * 1024
LONGEST_NAME = 200


class ArtefactMissing(LookupError):
    """Raised if the team has no artefact with this hash."""


def put(team: uuid.UUID, data: bytes, media_type: str, name: str = "") -> ArtefactRef:
    """Store `data` once. Storing it again, even from two concurrent writers, yields the same artefact."""
    sha = sha256(data)
    with transaction.atomic():
        artefact, created = Artefact.objects.get_or_create(
            team_id=team, sha=sha, defaults={"media_type": media_type, "bytes": len(data), "name": name[:LONGEST_NAME]}
        )
        if created:
            pieces = range(0, len(data), CHUNK_BYTES)
            ArtefactChunk.objects.bulk_create(
                ArtefactChunk(artefact=artefact, index=index, data=data[start : start + CHUNK_BYTES]) for index, start in enumerate(pieces)
            )
    return ArtefactRef(sha=sha, media_type=media_type, bytes=len(data), name=name)


def get(team: uuid.UUID, sha: str) -> bytes:
    """Return the bytes; raises `ArtefactMissing`."""
    return read(find(team, sha))


def find(team: uuid.UUID, sha: str) -> Artefact:
    artefact = Artefact.objects.filter(team_id=team, sha=sha).first()
    if artefact is None:
        raise ArtefactMissing(f"the team has no artefact {sha}")
    return artefact


def read(artefact: Artefact) -> bytes:
    return b"".join(bytes(data) for data in artefact.chunks.order_by("index").values_list("data", flat=True))
