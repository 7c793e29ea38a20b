"""The live protocol. Client: `{"type": "open", "since": N}`, then `{"type": "ack", "seq": M}` for each batch it was sent."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from contextlib import suppress

from channels.generic.websocket import AsyncWebsocketConsumer

from webapp.runs.hub import Follower, hub

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0  # how long a right that went without a word (webapp/accounts/lost_access.py) may still be used
LONGEST_MESSAGE = 1000  # characters; no client has more to say
LARGEST = 2**63 - 1  # a seq, as Postgres keeps it

# Close codes; a browser sees them.
BAD_MESSAGE, SIGNED_OUT, NOT_YOURS = 4400, 4401, 4404

ALLOWED = """
SELECT r.last_seq FROM runs_run r
WHERE r.id = %(run)s
  AND (EXISTS (SELECT FROM accounts_user u WHERE u.id = %(user)s AND u.is_active)
         AND (r.published OR EXISTS (SELECT FROM accounts_membership m WHERE m.team_id = r.team_id AND m.user_id = %(user)s))
       OR EXISTS (SELECT FROM review_share s WHERE s.id = %(share)s AND s.run_id = r.id AND s.revoked_at IS NULL AND s.expires_at > now()))
  AND (%(session)s::text IS NULL OR EXISTS (SELECT FROM django_session s WHERE s.session_key = %(session)s AND s.expire_date > now()))
"""


class BadMessage(ValueError):
    """The client said something that the protocol does not have."""


class RunConsumer(AsyncWebsocketConsumer):
    """Sends the events of one run from the client's cursor on, one batch at a time, the next only after the last was acknowledged.

    Nothing is queued for a client: a slow one falls behind, and one that never acknowledges gets nothing more.
    """

    async def connect(self) -> None:
        self.run = str(self.scope["url_route"]["kwargs"]["run_id"])
        self.sender: asyncio.Task | None = None
        self.cursor = 0
        self.unacknowledged: int | None = None
        self.acknowledged = asyncio.Event()
        self.head = 0
        self.checked = time.monotonic()
        self.access_epoch = hub().access_epoch  # when it was last asked whether this person may see the run
        user = self.scope.get("user")
        self.share = (self.scope.get("session") or {}).get("shares", {}).get(self.run)  # a guest's (webapp/review/guests.py)
        if user is None or not (user.is_authenticated or self.share):
            await self._refuse(SIGNED_OUT)
        elif (head := await self._head()) is None:
            await self._refuse(NOT_YOURS)
        else:
            self.head = head
            await self.accept()

    async def _refuse(self, code: int) -> None:
        """Accepted first: a browser learns the code of a connection that was open, and nothing of one that was not."""
        await self.accept()
        await self.close(code)

    async def disconnect(self, code: int) -> None:
        await self._stop_sending()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            await self._obey(text_data)
        except BadMessage:
            await self._stop_sending()
            await self.close(BAD_MESSAGE)

    async def _obey(self, text: str | None) -> None:
        if text is None or len(text) > LONGEST_MESSAGE:
            raise BadMessage
        try:
            message = json.loads(text)
        except ValueError:
            raise BadMessage from None
        match message:
            case {"type": "open", "since": int(since)} if 0 <= since <= LARGEST:
                await self._stop_sending()
                self.cursor, self.unacknowledged = since, None
                self.acknowledged.set()
                self.sender = asyncio.create_task(self._send_events())
            case {"type": "ack", "seq": int(seq)} if self.sender is not None:
                if self.unacknowledged is not None and seq >= self.unacknowledged:
                    self.unacknowledged = None
                    self.acknowledged.set()
            case _:
                raise BadMessage

    async def _stop_sending(self) -> None:
        if getattr(self, "sender", None) is not None:
            self.sender.cancel()
            with suppress(asyncio.CancelledError):
                await self.sender
            self.sender = None

    async def _send_events(self) -> None:
        try:
            async with hub().follow(self.run) as follower:
                while await self._send_batch(follower):
                    pass
        except asyncio.CancelledError:
            raise
        except Exception:
            # The client opens again at its cursor and loses nothing.
            log.exception("sending the events of run %s failed", self.run)
            await self.close(1011)

    async def _send_batch(self, follower: Follower) -> bool:
        """Wait for the acknowledgement and for news, see whether this person may still see them, send; False where not."""
        await self.acknowledged.wait()
        batch = await hub().batch(self.run, self.cursor, self.head)
        if not await self._still_allowed(batch is not None):
            await self.close(NOT_YOURS)
            return False
        if batch is None:
            await follower.woken()
            return True
        self.cursor = self.unacknowledged = batch.last
        self.acknowledged.clear()
        await self.send(text_data=batch.text)
        return True

    async def _still_allowed(self, sending: bool) -> bool:
        """Asked again where somebody may have lost a right, and every `CHECK_SECONDS` while events are sent."""
        now = time.monotonic()
        if self.access_epoch == hub().access_epoch and not (sending and now - self.checked > CHECK_SECONDS):
            return True
        self.access_epoch, self.checked = hub().access_epoch, now
        head = await self._head()
        self.head = max(self.head, head or 0)
        return head is not None

    async def _head(self) -> int | None:
        """The run's last seq, or None where this person may not see the run (any more)."""
        session = self.scope.get("session")
        who = {"user": self.scope["user"].pk, "share": self.share, "session": getattr(session, "session_key", None)}
        row = await hub().query(ALLOWED, {"run": uuid.UUID(self.run)} | who)
        return row[0] if row else None
