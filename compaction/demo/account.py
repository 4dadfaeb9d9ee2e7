"""The demo's operator: a superuser with a password that is shown once, and a token for the API."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from rest_framework.authtoken.models import Token

USERNAME = "operator"
PASSWORD_BYTES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The account; `password` is known only in the run that made it."""

    user: Any
    token: str
    password: str = ""


def ensure_operator() -> Operator:
    """Return the operator's account, made now where it is missing; an old password stays."""
    users: Any = get_user_model()._default_manager
    user, password = users.filter(**{get_user_model().USERNAME_FIELD: USERNAME}).first(), ""
    if user is None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = users.create_superuser(USERNAME, password=password)
    token, _ = Token.objects.get_or_create(user=user)
    return Operator(user=user, token=token.key, password=password)
