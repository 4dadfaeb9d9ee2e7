"""The four tables of a conversation: sessions, branches, messages, originals of cut results."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

from chatapp.ids import new_id, short_id
from chatapp.lineage import lineage_below
from chatapp.messages.wire import WireMessage, content_of, to_wire
from chatapp.part_store import PartReader
from chatapp.titles import ListedSession


class Session(ListedSession):
    """One conversation. Its messages form a tree of branches; `active_branch` is the line in use.

    `turn_owner` and `turn_expires_at` are the turn's lease: one turn at a time per session, taken
    by a conditional UPDATE (see chatapp/turns/service.py). `import_key` names the conversation that
    was imported. `stateless` remembers that its server does not keep answers, so the whole history
    is sent, `plain_text` that it takes texts only. Both are set by a refusal and can be taken back.
    """

    class Api(models.TextChoices):
        """Which wire format talks to the model."""

        CHAT = "chat", "Chat Completions"
        RESPONSES = "responses", "Responses"

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="chat_sessions",
        # session_owner_newest begins with it.
        db_index=False,
    )
    model = models.CharField(
        max_length=100, default="default", help_text="Alias from the CHATAPP MODELS setting."
    )
    api = models.CharField(max_length=10, choices=Api.choices, default=Api.CHAT)
    stateless = models.BooleanField(default=False)
    plain_text = models.BooleanField(default=False)
    # {code of a change: {"at": ISO 8601}}: what its server's refusals taught about requests of this
    # conversation (chatapp/llm/adaptations.py).
    adaptations = models.JSONField(default=dict, db_default={}, blank=True, editable=False)
    system_prompt = models.TextField(blank=True)
    tools = models.JSONField(default=list, blank=True)
    active_branch = models.ForeignKey(
        "chatapp.Branch", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    metadata = models.JSONField(default=dict, blank=True)
    import_key = models.CharField(max_length=100, null=True, blank=True, editable=False)
    turn_owner = models.UUIDField(null=True, blank=True, editable=False)
    turn_expires_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "sessions"
        permissions = [
            ("erase_user", "Can erase a person with all they wrote"),
            ("read_texts", "Can read texts"),
        ]
        constraints = [
            # Importing one conversation twice gives one session (formats.records.Conversation).
            models.UniqueConstraint(fields=["owner", "import_key"], name="session_import_once"),
        ]
        indexes = [
            # GET sessions/: one owner's sessions, newest first.
            models.Index(fields=["owner", "-created_at", "-id"], name="session_owner_newest"),
            # The admin's list of all sessions, newest first.
            models.Index(fields=["-created_at", "-id"], name="session_newest"),
            # The admin's list by last activity; the same of one model; by size, largest first.
            models.Index(fields=["-updated_at", "-id"], name="session_last_active"),
            models.Index(fields=["model", "-updated_at", "-id"], name="session_of_model"),
            models.Index(fields=["-request_tokens", "-id"], name="session_largest"),
            # Taking a turn's lease: how many turns of the owner are under way.
            models.Index(
                fields=["owner", "turn_expires_at"],
                condition=models.Q(turn_expires_at__isnull=False),
                name="session_turns_under_way",
            ),
        ]

    def __str__(self) -> str:
        return self.title or f"Session {short_id(self.id)}"

    @property
    def branch(self) -> Branch:
        """The active branch; every stored session has one (transcript.create_session)."""
        if self.active_branch is None:
            raise ValueError(f"Session {self.id} has no active branch; it was not created whole.")
        return self.active_branch


MAX_LABEL_CHARS = 120


class Branch(models.Model):
    """A parent branch up to `fork_position`, then its own messages.

    A replay repeats the messages of the branch it `replaces` from a point on, at the same
    positions, with tool results shortened; the old branch stays as it was.
    `message_count`, `token_total` and `char_total` are sums along the whole path, the parent's part
    included, so that a trigger reads two numbers however old the session is. Placeholders count in
    none. The parent owns the message at `fork_position`, so fork positions grow from ancestor to
    descendant. `depth` and `jump`, the stored lineage, find ancestors in O(log depth) steps.
    """

    class Kind(models.TextChoices):
        """Why the branch exists."""

        ROOT = "root", "Root"
        FORK = "fork", "Fork"
        REPLAY = "replay", "Replay"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(
        "chatapp.Session",
        on_delete=models.CASCADE,
        related_name="branches",
        # branch_of_session begins with it.
        db_index=False,
    )
    parent = models.ForeignKey(
        "self",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="children",
        # branch_of_parent begins with it.
        db_index=False,
    )
    fork_position = models.BigIntegerField(null=True, blank=True)
    # Ancestors of the branch: how many there are, and one to skip to. Only speed depends on them.
    depth = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    # An ancestor is deleted with its descendants, through `parent`: no constraint, no index.
    jump = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    kind = models.CharField(max_length=6, choices=Kind.choices, default=Kind.ROOT)
    replaces = models.ForeignKey(
        "self", on_delete=models.CASCADE, null=True, blank=True, related_name="replays"
    )
    # A name that people give it; empty for none.
    label = models.CharField(max_length=MAX_LABEL_CHARS, blank=True, default="", db_default="")
    head_position = models.BigIntegerField(default=0)
    message_count = models.PositiveIntegerField(default=0)
    token_total = models.BigIntegerField(default=0)
    char_total = models.BigIntegerField(default=0, db_default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "branches"
        verbose_name_plural = "branches"
        indexes = [
            # GET sessions/{id}/branches/: the branches of one session, oldest first.
            models.Index(fields=["session", "created_at"], name="branch_of_session"),
            # The admin's lists of branches and of their states, newest first.
            models.Index(fields=["-created_at", "-id"], name="branch_newest"),
            # GET sessions/{id}/tree/?branch=: where branches leave one, and the oldest at a place.
            models.Index(
                fields=["parent", "fork_position", "created_at", "id"], name="branch_of_parent"
            ),
            # GET sessions/{id}/tree/: where branches leave others, in order. Where they end has no
            # index: that is written with every message, which PostgreSQL does within a page (HOT)
            # as long as none holds it.
            models.Index(fields=["session", "fork_position", "parent"], name="branch_fork_place"),
        ]

    def __str__(self) -> str:
        return self.label or f"{self.get_kind_display()} {short_id(self.id)}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the branch; a new one gets its lineage from its parent's."""
        if self._state.adding and self.parent_id is not None and self.jump_id is None:
            self.depth, self.jump_id = lineage_below(Branch.objects.all(), self.parent_id)
        super().save(*args, **kwargs)


# Positions go in steps, so that a row can be put between two.
POSITION_STEP = 1_000_000


class Message(models.Model):
    """One row: written once by chatapp.transcript, its text never changed.

    Why: docs/architecture.md#compaction-changes-nothing-stored.
    `content` is the text (NULL where the client sent null); `parts` is set when the client sent a
    list, with its texts taken out into `content` (see chatapp.messages.wire), and its long data
    into files of `parts_bytes` together (see chatapp.messages.apart). `tokens` and `chars`, its
    code points, are counted once; `tokens_through` and `chars_through` sum them along the path.
    `client_key` is an Idempotency-Key.
    """

    class Role(models.TextChoices):
        """Who speaks."""

        SYSTEM = "system", "System"
        USER = "user", "User"
        ASSISTANT = "assistant", "Assistant"
        TOOL = "tool", "Tool"

    class Kind(models.TextChoices):
        """What the row is: part of the conversation, a note in it, or the mark of a summary."""

        MESSAGE = "message", "Message"
        NOTE = "note", "Note"
        PLACEHOLDER = "placeholder", "Placeholder"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    session = models.ForeignKey(
        "chatapp.Session", on_delete=models.CASCADE, related_name="messages"
    )
    branch = models.ForeignKey(
        "chatapp.Branch",
        on_delete=models.CASCADE,
        related_name="messages",
        # message_place begins with it.
        db_index=False,
    )
    position = models.BigIntegerField()
    role = models.CharField(max_length=9, choices=Role.choices)
    kind = models.CharField(max_length=11, choices=Kind.choices, default=Kind.MESSAGE)
    content = models.TextField(null=True, blank=True)
    parts = models.JSONField(null=True, blank=True)
    parts_bytes = models.PositiveBigIntegerField(default=0, db_default=0, editable=False)
    tool_calls = models.JSONField(null=True, blank=True)
    tool_call_id = models.TextField(blank=True, default="")
    tool_name = models.TextField(blank=True, default="")
    reasoning = models.TextField(blank=True, default="")
    summary = models.TextField(blank=True, default="")
    metadata = models.JSONField(default=dict, blank=True)
    # What the answer's server alone takes back (chatapp/messages/vendor.py).
    vendor = models.JSONField(null=True, blank=True)
    tokens = models.PositiveIntegerField(default=0)
    tokens_through = models.BigIntegerField(default=0)
    chars = models.PositiveBigIntegerField(default=0, db_default=0)
    chars_through = models.BigIntegerField(default=0, db_default=0)
    usage = models.JSONField(null=True, blank=True)
    finish_reason = models.CharField(max_length=40, blank=True, default="")
    response_id = models.CharField(max_length=200, blank=True, default="")
    pinned = models.BooleanField(default=False)
    client_key = models.CharField(max_length=200, null=True, blank=True, editable=False)
    client_index = models.PositiveSmallIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "messages"
        constraints = [
            # One place, one row; also the index that reads a branch in order.
            models.UniqueConstraint(fields=["branch", "position"], name="message_place"),
            # A request sent twice under one Idempotency-Key is stored once.
            models.UniqueConstraint(
                fields=["session", "client_key", "client_index"],
                condition=models.Q(client_key__isnull=False),
                name="message_sent_once",
            ),
        ]
        indexes = [
            # Pinned messages before the cursor, read with every request: few rows of many.
            models.Index(
                fields=["branch", "position"],
                condition=models.Q(pinned=True),
                name="message_pinned",
            ),
            # Placeholders of a branch, newest first: old data without summary rows.
            models.Index(
                fields=["branch", "-position"],
                condition=models.Q(kind="placeholder"),
                name="message_placeholder",
            ),
            # The same on the path of a deep fork: the session's few are tested one by one.
            models.Index(
                fields=["session", "position"],
                condition=models.Q(pinned=True),
                name="message_pinned_session",
            ),
            models.Index(
                fields=["session", "-position"],
                condition=models.Q(kind="placeholder"),
                name="message_mark_session",
            ),
            # The admin's list of all messages, newest first.
            models.Index(fields=["-created_at", "-id"], name="message_newest"),
            # The few messages of a session that name files: which files are in use.
            models.Index(
                fields=["session"],
                condition=models.Q(parts_bytes__gt=0),
                name="message_part_files",
            ),
        ]

    # What is sent, counted and summarised: all but the marks of summaries.
    SPOKEN = (Kind.MESSAGE, Kind.NOTE)

    # Texts of the row's files by digest, while the object that they came in with is there.
    part_texts: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.role} {self.sequence_id}"

    @property
    def sequence_id(self) -> Decimal:
        """The position in steps: 3.500000 stands between the third and the fourth message."""
        return (Decimal(self.position) / POSITION_STEP).quantize(Decimal("0.000001"))

    @property
    def place(self) -> str:
        """The sequence id for people: 3, or 3.5 for what was put between."""
        whole, rest = divmod(self.position, POSITION_STEP)
        return f"{self.sequence_id.normalize():f}" if rest else str(whole)

    @property
    def is_spoken(self) -> bool:
        """Whether the row is a message or a note, and no placeholder."""
        return self.kind in self.SPOKEN

    @property
    def is_note(self) -> bool:
        """Whether the row is sent as a user's message, though nobody asked anything."""
        return self.kind == self.Kind.NOTE

    @property
    def is_question(self) -> bool:
        """Whether a user speaks and begins a turn: a note is sent as a user's, and asks nothing."""
        return self.role == self.Role.USER and self.kind == self.Kind.MESSAGE

    @property
    def carries_summary(self) -> bool:
        """Whether this is a note that holds a summary, ours of a branch or an imported one."""
        kinds = ("branch_summary", "compaction_summary")
        return self.is_note and self.metadata.get("type") in kinds

    @property
    def is_pinned_system(self) -> bool:
        """Whether this is a system message that opened the conversation: always sent, first."""
        return self.pinned and self.role == self.Role.SYSTEM

    def wire(self) -> WireMessage:
        """Return the message as an OpenAI chat message, its files read."""
        return self._reader().messages([self.stored_wire()])[0]

    def stored_wire(self) -> WireMessage:
        """Return the same without the data of parts that are kept apart: no file is read."""
        return to_wire(self)

    def content_with_files(self) -> Any:
        """Return the content as the client sent it, its files read."""
        return self._reader().content(content_of(self))

    def _reader(self) -> PartReader:
        return PartReader(self.session_id, self.part_texts)


class MessageOriginal(models.Model):
    """What a message said before the guard at storing cut it; export and pages show it whole.

    It is written once, together with its message, and never sent to a model.
    """

    message = models.OneToOneField(
        "chatapp.Message", on_delete=models.CASCADE, primary_key=True, related_name="original"
    )
    content = models.TextField()
    parts = models.JSONField(null=True, blank=True)

    class Meta:
        db_table = "message_originals"

    def __str__(self) -> str:
        return f"Whole text of message {short_id(self.message_id)}"
