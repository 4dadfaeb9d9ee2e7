"""Addresses outside the API's views: the front door, health, icon, and what does not exist."""

import pytest
from django.contrib.staticfiles import finders
from django.test import Client, RequestFactory

from chatapp.api.exceptions import server_error


def test_the_front_door_leads_to_the_admin():
    assert Client().get("/").headers["Location"] == "/admin/"


@pytest.mark.django_db
def test_health_answers_a_load_balancer():
    response = Client().get("/health/")
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_the_icon_exists():
    assert Client().get("/favicon.ico").headers["Location"].endswith("chatapp/favicon.svg")
    assert finders.find("chatapp/favicon.svg")


def test_an_api_address_that_does_not_exist_is_a_problem_document():
    response = Client().get("/api/v1/nothing/")
    assert response.status_code == 404
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == 404


def test_a_page_that_does_not_exist_is_a_page():
    response = Client().get("/nothing/")
    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("text/html")


def test_a_fault_of_ours_is_a_problem_document_under_the_api():
    response = server_error(RequestFactory().get("/api/v1/sessions/"))
    assert response.status_code == 500
    assert response.headers["Content-Type"] == "application/problem+json"
