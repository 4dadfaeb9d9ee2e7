"""Views of compaction: each calls one service or selector and holds no rule."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import generics, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from chatapp.api.base import (
    BoundedPagination,
    KnownQueryView,
    NoFields,
    SessionView,
    TranscriptPagination,
    sessions_of,
)
from chatapp.api.exceptions import Conflict
from chatapp.api.query import Kind, QueryParameter
from chatapp.api.serializers import MessageSerializer
from chatapp.models import Message
from chatapp.pools import Pool, answered_in, slow_work
from compaction.api import serializers as shapes
from compaction.branches.snapshot import BranchSnapshot, snapshot_of
from compaction.engine.policy.reasons import Reason
from compaction.errors import CompactionError
from compaction.models import (
    CompactionProfile,
    CompactionRun,
    CompactionStep,
    RecoveryStep,
    SessionSummary,
)
from compaction.profiles import find_profile
from compaction.runs import lifecycle
from compaction.runs.holding import RestorePreview, hold_facts, lift_hold, preview_restore
from compaction.runs.lifecycle import switch_under_way
from compaction.runs.redo_estimates import Estimate
from compaction.runs.resummarize import estimate_compaction
from compaction.runs.scheduling import assign_profile
from compaction.runs.status import branch_facts, last_consolidated, switch_facts
from compaction.runs.worker import compact_branch
from compaction.summaries.instructions import change_instructions
from compaction.summaries.restore import restore_summary

MANUAL = CompactionRun.Trigger.MANUAL


def _profile(name: str) -> CompactionProfile | None:
    if not name:
        return None
    try:
        return find_profile(name)
    except CompactionError as error:
        raise ValidationError({"profile": [str(error)]}) from error


def _own_runs(request: Request) -> QuerySet[CompactionRun]:
    return (
        CompactionRun.objects.filter(session__owner=cast(Any, request.user))
        .select_related("profile")
        .prefetch_related("steps", "summaries")
    )


def _own_summaries(request: Request) -> QuerySet[SessionSummary]:
    return SessionSummary.objects.filter(session__owner=cast(Any, request.user)).select_related(
        "profile", "branch", "session", "author"
    )


@answered_in(Pool.SLOW)
class CompactView(SessionView):
    """Compact a session now."""

    problems = {"POST": ("conflict", "unknown_model", "too_much_at_once")}

    @extend_schema(
        summary="Compact a session",
        request=shapes.CompactSerializer,
        responses={200: shapes.COMPACT_RESULT, 202: shapes.RunSerializer},
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Queue a run (202), wait for its end (200 with `wait`), or only estimate (`dry_run`)."""
        session = self.get_session()
        form = shapes.CompactSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        asked = form.validated_data
        profile = _profile(asked["profile"])
        if asked["dry_run"]:
            estimate = _estimate(snapshot_of(session, profile=profile))
            shown = shapes.EstimateSerializer({"dry_run": True, **estimate.as_dict()})
            return Response(shown.data)
        arguments: dict[str, Any] = {
            "session": session,
            "trigger": MANUAL,
            "reason": Reason.FORCED if asked["force"] else Reason.MANUAL,
            "instructions": asked["instructions"],
            "requested_by": request.user,
        }
        if asked["wait"]:
            with slow_work.of(request.user):
                run = compact_branch(profile=profile, **arguments)
            return Response(self._json(request, run))
        snapshot = snapshot_of(session, profile=profile)
        run = lifecycle.request_run(
            lifecycle.RunRequest(
                branch=snapshot.branch,
                profile=snapshot.profile_row,
                background=True,
                **arguments,
            )
        )
        return Response(self._json(request, run), status=status.HTTP_202_ACCEPTED)

    def _json(self, request: Request, run: CompactionRun) -> Any:
        return shapes.RunSerializer(_own_runs(request).get(pk=run.pk)).data


def _estimate(snapshot: BranchSnapshot) -> Estimate:
    try:
        return estimate_compaction(snapshot)
    except CompactionError as error:
        raise Conflict(str(error)) from error


class CompactionView(SessionView):
    """The compaction state of a session's active branch."""

    problems = {"GET": ("unknown_model",), "PATCH": ("unknown_model",)}

    @extend_schema(summary="Show the state of compaction", responses=shapes.StateSerializer)
    def get(self, request: Request, session_id: str) -> Response:
        """Return cursor, lease, pending, and which trigger comes next and how far it is."""
        return Response(_state_of(snapshot_of(self.get_session())))

    @extend_schema(
        summary="Choose a session's profile",
        request=shapes.AssignProfileSerializer,
        responses=shapes.StateSerializer,
    )
    def patch(self, request: Request, session_id: str) -> Response:
        """Give the session a profile of its own, or the default again."""
        session = self.get_session()
        form = shapes.AssignProfileSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        name = form.validated_data["profile"]
        _profile(name)
        assign_profile(session, name, by=request.user)
        return Response(_state_of(snapshot_of(session)))


def _state_of(snapshot: BranchSnapshot) -> Any:
    facts = branch_facts(snapshot) | {
        "last_consolidated": last_consolidated(snapshot),
        "switch": switch_facts(switch_under_way(snapshot.session)),
        "branch_summary": snapshot.profile.branch_summary,
    }
    return shapes.StateSerializer(facts).data


class HoldView(SessionView):
    """The hold of a session's active branch, which a restore sets (restore_hold)."""

    problems = {"DELETE": ("unknown_model",)}

    @extend_schema(
        summary="Lift the hold of a restore", request=None, responses={200: shapes.StateSerializer}
    )
    def delete(self, request: Request, session_id: str) -> Response:
        """Let the rules count again; what is due is queued. Without a hold nothing changes."""
        session = self.get_session()
        lift_hold(session, by=request.user)
        return Response(_state_of(snapshot_of(session)))


class ProfileList(KnownQueryView):
    """The profiles that a session or a compaction may name."""

    @extend_schema(
        responses=shapes.ProfileListSerializer, summary="List the profiles that can be named"
    )
    def get(self, request: Request) -> Response:
        """Return the current version of every profile by name."""
        rows = CompactionProfile.objects.filter(is_current=True).order_by("name")
        return Response(shapes.ProfileListSerializer({"results": rows}).data)


_COLUMNS = ("session", "status", "trigger", "reason")


@extend_schema_view(get=extend_schema(summary="List your runs", description="Newest first."))
class RunList(KnownQueryView, generics.ListAPIView[CompactionRun]):
    """Your runs, newest first; `?session=` for one session's."""

    serializer_class = shapes.RunSerializer
    query = (
        QueryParameter(name="session", kind=Kind.ID, description="Runs of this session."),
        QueryParameter(
            name="status",
            choices=CompactionRun.Status.values,
            description="Runs in this state.",
        ),
        QueryParameter(
            name="trigger",
            choices=CompactionRun.Trigger.values,
            description="Runs that were started so.",
        ),
        QueryParameter(name="reason", description="Runs for this reason."),
    )

    def get_queryset(self) -> QuerySet[CompactionRun]:
        """Return those of the caller's own runs that were asked for."""
        if getattr(self, "swagger_fake_view", False):
            return CompactionRun.objects.none()
        asked = {name: value for name, value in self.asked.items() if value and name in _COLUMNS}
        if "session" in asked:
            # Somebody else's session and none at all get one answer, as at every other address.
            _find(sessions_of(self.request.user), str(asked["session"]))
        return _own_runs(self.request).filter(**asked)


class RunDetail(KnownQueryView):
    """One run with its steps."""

    @extend_schema(summary="Read a run", responses=shapes.RunSerializer)
    def get(self, request: Request, run_id: str) -> Response:
        """Return the run."""
        return Response(shapes.RunSerializer(_find(_own_runs(request), run_id)).data)


class RunCancel(KnownQueryView):
    """Cancel a run that waits or works."""

    problems = {"POST": ("conflict",)}

    @extend_schema(summary="Cancel a run", request=NoFields, responses=shapes.RunSerializer)
    def post(self, request: Request, run_id: str) -> Response:
        """Cancel; a working run stops before its next model call and stores nothing."""
        run = _find(_own_runs(request), run_id)
        NoFields(data=request.data).is_valid(raise_exception=True)
        try:
            lifecycle.cancel_run(run)
        except CompactionError as error:
            raise Conflict(str(error)) from error
        return Response(shapes.RunSerializer(_find(_own_runs(request), run_id)).data)


class RecoveryList(SessionView):
    """What a session's turns tried after refusals, newest first."""

    pagination_class = BoundedPagination

    @extend_schema(
        summary="List what turns tried after refusals",
        responses=shapes.RecoveryStepSerializer(many=True),
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of steps, newest first; those of one turn share `recovery`."""
        rows = RecoveryStep.objects.filter(session=self.get_session())
        pages = BoundedPagination()
        page = pages.paginate_queryset(rows, request, view=self) or []
        return pages.get_paginated_response(shapes.RecoveryStepSerializer(page, many=True).data)


@extend_schema(
    deprecated=True,
    summary="List what turns tried after refusals (older name)",
    description="Use `recoveries/`: this address goes with the next version.",
    parameters=[
        OpenApiParameter("Deprecation", {"const": "true"}, OpenApiParameter.HEADER, response=[200]),
        OpenApiParameter(
            "Link",
            str,
            OpenApiParameter.HEADER,
            response=[200],
            description="The new address, as `successor-version`.",
        ),
    ],
)
class RungList(RecoveryList):
    """The same under its older name, for one version: use `recoveries/`."""

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Say in the answer that the name is going away."""
        response["Deprecation"] = "true"
        response["Link"] = (
            f'<{request.path.replace("/rungs/", "/recoveries/")}>; rel="successor-version"'
        )
        return super().finalize_response(request, response, *args, **kwargs)


class SummaryList(SessionView):
    """A session's summaries, newest first, those that no longer count included."""

    pagination_class = BoundedPagination
    query = (
        QueryParameter(
            name="status",
            choices=SessionSummary.Status.values,
            description="Summaries in this state; `active` are those that count.",
        ),
    )

    @extend_schema(
        summary="List a session's summaries", responses=shapes.SummarySerializer(many=True)
    )
    def get(self, request: Request, session_id: str) -> Response:
        """Return a page of summaries, newest first."""
        rows = _own_summaries(request).filter(session=self.get_session())
        if wanted := self.asked.get("status"):
            rows = rows.filter(status=wanted)
        pages = BoundedPagination()
        page = pages.paginate_queryset(rows, request, view=self) or []
        return pages.get_paginated_response(shapes.SummarySerializer(page, many=True).data)


class SummaryDetail(KnownQueryView):
    """One summary."""

    @extend_schema(summary="Read a summary", responses=shapes.SummarySerializer)
    def get(self, request: Request, summary_id: str) -> Response:
        """Return the summary."""
        return Response(shapes.SummarySerializer(_find(_own_summaries(request), summary_id)).data)

    @extend_schema(
        summary="Change a summary's instructions",
        request=shapes.InstructionsSerializer,
        responses=shapes.SummarySerializer,
    )
    def patch(self, request: Request, summary_id: str) -> Response:
        """Change what the next summary of the same messages is told; the text stays as it is."""
        summary = _find(_own_summaries(request), summary_id)
        form = shapes.InstructionsSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        change_instructions(summary, form.validated_data["instructions"], by=request.user)
        return Response(shapes.SummarySerializer(summary).data)


class SummaryMessages(KnownQueryView):
    """The messages a summary was made from, in order."""

    pagination_class = TranscriptPagination

    @extend_schema(
        summary="List what a summary was made from", responses=MessageSerializer(many=True)
    )
    def get(self, request: Request, summary_id: str) -> Response:
        """Return a page of exactly what the summariser received."""
        summary = _find(_own_summaries(request), summary_id)
        rows = Message.objects.filter(summary_links__summary=summary)
        pages = TranscriptPagination()
        page = pages.paginate_queryset(rows, request, view=self) or []
        return pages.get_paginated_response(MessageSerializer(page, many=True).data)


class SummarySteps(KnownQueryView):
    """The steps behind a summary, as a tree."""

    @extend_schema(
        summary="List the calls behind a summary", responses=shapes.StepSerializer(many=True)
    )
    def get(self, request: Request, summary_id: str) -> Response:
        """Return the steps in the order of the calls."""
        summary = _find(_own_summaries(request), summary_id)
        steps = CompactionStep.objects.filter(run_id=summary.run_id).order_by("order")
        return Response(shapes.StepSerializer(steps, many=True).data)


class SummaryRestore(KnownQueryView):
    """Undo a summary: its messages are sent verbatim again; the text stays readable."""

    problems = {"POST": ("conflict",)}

    @extend_schema(
        summary="Take a summary back",
        request=shapes.RestoreSerializer,
        responses=shapes.RestoredSerializer,
    )
    def post(self, request: Request, summary_id: str) -> Response:
        """Restore, and hold; 409 while newer summaries build on it and `cascade` is not set.

        The answer says what the next turn will do; with `dry_run` it says so before anything is
        done. `POST sessions/{id}/compact/` with `instructions` compacts again from here.
        """
        summary = _find(_own_summaries(request), summary_id)
        form = shapes.RestoreSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        cascade, dry_run = form.validated_data["cascade"], form.validated_data["dry_run"]
        try:
            preview = preview_restore(summary, cascade=cascade, by=request.user)
            if not dry_run:
                restore_summary(summary, cascade=cascade, by=request.user)
        except CompactionError as error:
            raise Conflict(str(error)) from error
        return Response(shapes.RestoredSerializer(_restored(preview, dry_run=dry_run)).data)


def _restored(preview: RestorePreview, *, dry_run: bool) -> dict[str, Any]:
    """Return what a restore did, or would do."""
    snapshot = preview.snapshot
    if not dry_run:
        snapshot = snapshot_of(snapshot.session, snapshot.branch)
        for row in preview.summaries:
            row.status = SessionSummary.Status.RESTORED
    return {
        "dry_run": dry_run,
        "summaries": preview.summaries,
        "cursor": snapshot.state.cursor,
        "messages": preview.messages,
        "tokens": preview.tokens,
        "next_turn": preview.next_turn,
        "text": preview.sentence,
        "hold": hold_facts(snapshot),
    }


def _find(rows: QuerySet[Any], key: str) -> Any:
    row = rows.filter(pk=key).first()
    if row is None:
        raise Http404
    return row
