"""Addresses of the conversation API."""

from django.urls import path

from chatapp.api import (
    branches,
    catalogue,
    imports,
    messages,
    requests,
    schema,
    sessions,
    transfer,
    tree,
    turns,
)

urlpatterns = [
    path("sessions/", sessions.SessionList.as_view(), name="session-list"),
    path("sessions/import/", transfer.ImportView.as_view(), name="session-import"),
    path("sessions/<uuid:session_id>/", sessions.SessionDetail.as_view(), name="session-detail"),
    path(
        "sessions/<uuid:session_id>/messages/", messages.MessageList.as_view(), name="message-list"
    ),
    path("sessions/<uuid:session_id>/turns/", turns.TurnView.as_view(), name="turn"),
    path("sessions/<uuid:session_id>/context/", turns.ContextView.as_view(), name="context"),
    path("sessions/<uuid:session_id>/branches/", branches.BranchList.as_view(), name="branch-list"),
    path("sessions/<uuid:session_id>/tree/", tree.TreeView.as_view(), name="tree"),
    path("sessions/<uuid:session_id>/export/", transfer.ExportView.as_view(), name="export"),
    path("imports/", imports.ImportList.as_view(), name="import-list"),
    path("imports/<uuid:import_id>/", imports.ImportDetail.as_view(), name="import-detail"),
    path(
        "imports/<uuid:import_id>/sessions/",
        imports.ImportedSessionList.as_view(),
        name="import-sessions",
    ),
    path("messages/<uuid:message_id>/", messages.MessageDetail.as_view(), name="message-detail"),
    path(
        "messages/<uuid:message_id>/request/",
        requests.AnswerRequestView.as_view(),
        name="message-request",
    ),
    path("branches/<uuid:branch_id>/", branches.BranchDetail.as_view(), name="branch-detail"),
    path(
        "branches/<uuid:branch_id>/activate/",
        branches.BranchActivate.as_view(),
        name="branch-activate",
    ),
    path("models/", catalogue.ModelList.as_view(), name="model-list"),
    path("schema/", schema.SchemaView.as_view(), name="schema"),
    path("docs/", schema.DocsView.as_view(), name="docs"),
]
