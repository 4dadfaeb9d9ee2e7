"""Addresses of compaction outside the API."""

from django.urls import path

from compaction.monitoring.scrape import metrics

urlpatterns = [
    path("metrics", metrics, name="metrics"),
]
