"""Addresses of the compaction API."""

from django.urls import path

from compaction.api import memories, quality, versions, views

urlpatterns = [
    path("sessions/<uuid:session_id>/compact/", views.CompactView.as_view(), name="compact"),
    path(
        "sessions/<uuid:session_id>/compaction/", views.CompactionView.as_view(), name="compaction"
    ),
    path("sessions/<uuid:session_id>/compaction/hold/", views.HoldView.as_view(), name="hold"),
    path("sessions/<uuid:session_id>/summaries/", views.SummaryList.as_view(), name="summary-list"),
    path(
        "sessions/<uuid:session_id>/recoveries/",
        views.RecoveryList.as_view(),
        name="recovery-list",
    ),
    # The older name, for one version.
    path("sessions/<uuid:session_id>/rungs/", views.RungList.as_view(), name="rung-list"),
    path("profiles/", views.ProfileList.as_view(), name="profile-list"),
    path("runs/", views.RunList.as_view(), name="run-list"),
    path("runs/<uuid:run_id>/", views.RunDetail.as_view(), name="run-detail"),
    path("runs/<uuid:run_id>/cancel/", views.RunCancel.as_view(), name="run-cancel"),
    path("summaries/<uuid:summary_id>/", views.SummaryDetail.as_view(), name="summary-detail"),
    path(
        "summaries/<uuid:summary_id>/messages/",
        views.SummaryMessages.as_view(),
        name="summary-messages",
    ),
    path("summaries/<uuid:summary_id>/steps/", views.SummarySteps.as_view(), name="summary-steps"),
    path(
        "summaries/<uuid:summary_id>/restore/",
        views.SummaryRestore.as_view(),
        name="summary-restore",
    ),
    path(
        "summaries/<uuid:summary_id>/activate/",
        versions.SummaryActivate.as_view(),
        name="summary-activate",
    ),
    path("summaries/<uuid:summary_id>/edit/", versions.SummaryEdit.as_view(), name="summary-edit"),
    path(
        "summaries/<uuid:summary_id>/quality/",
        quality.SummaryQualityView.as_view(),
        name="summary-quality",
    ),
    path(
        "summaries/<uuid:summary_id>/lines/", quality.SummaryLines.as_view(), name="summary-lines"
    ),
    path(
        "messages/<uuid:message_id>/fate/", quality.MessageFateView.as_view(), name="message-fate"
    ),
    path("memories/", memories.MemoryList.as_view(), name="memory-list"),
    path("memories/compress/", memories.MemoryCompress.as_view(), name="memory-compress"),
    path("memories/runs/", memories.MemoryRunList.as_view(), name="memory-run-list"),
    path("memories/versions/", memories.MemoryVersionList.as_view(), name="memory-version-list"),
    path(
        "memories/versions/<uuid:version_id>/undo/",
        memories.MemoryVersionUndo.as_view(),
        name="memory-version-undo",
    ),
    path("memories/<uuid:memory_id>/", memories.MemoryDetail.as_view(), name="memory-detail"),
    path(
        "memories/<uuid:memory_id>/accept/", memories.MemoryAccept.as_view(), name="memory-accept"
    ),
]
