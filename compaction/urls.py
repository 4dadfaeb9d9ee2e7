"""Addresses of compaction outside the API."""

from django.urls import path

from compaction.metrics import metrics

urlpatterns = [
    path("metrics", metrics, name="metrics"),
]
