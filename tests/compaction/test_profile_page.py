"""The page of a profile: a field a parameter, live validation, versions, use."""

from __future__ import annotations

from dataclasses import fields

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models import JSONField, Value
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chatapp.models import Branch, Session
from compaction.admin.profile_form import UnitInput
from compaction.admin.profile_values import differences
from compaction.engine.parameters import GROUPS, Profile
from compaction.engine.profile import parameter_groups
from compaction.models import CompactionProfile, CompactionRun, CompactionState
from compaction.profiles import find_profile, make_default, refuse_stale, save_profile
from compaction.runs.scheduling import assign_profile
from tests.compaction.test_admin import page_of, told
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert(1)</script>"
ADD = "admin:compaction_compactionprofile_add"


@pytest.fixture
def mine() -> CompactionProfile:
    return save_profile(name="mine", parameters={"message_limit": 50})


@pytest.fixture
def environment(settings):
    def replace(**variables: str) -> None:
        settings.COMPACTION = settings.COMPACTION | {"ENVIRONMENT": variables}

    return replace


def sent(row, **values) -> dict:
    """Return what the page sends: every field as the stored version has it, then `values`."""
    return {"base": row.base, "description": row.description, "message_limit": "50"} | values


def save(client, row, **values):
    return client.post(page_of(row), sent(row, **values), follow=True)


def check(client, row, **values) -> dict:
    address = reverse("admin:compaction_compactionprofile_validate", args=[row.pk])
    response = client.post(address, sent(row, **values))
    assert response.status_code == 200
    return response.json()


def do(client, row, name, **values):
    address = reverse("admin:compaction_compactionprofile_do", args=[row.pk, name])
    return client.post(address, values, follow=True)


def staff_with(client, *codes):
    user = get_user_model().objects.create_user("staff", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    client.force_login(user)
    return user


def field_of(response, name):
    return response.context["adminform"].form[name]


# --- fields ---------------------------------------------------------------------------------------


def test_every_parameter_has_a_field_in_a_group_with_a_title(admin_client, mine):
    response = admin_client.get(page_of(mine))
    shown = [name for names in parameter_groups().values() for name in names]
    assert sorted(shown) == sorted(item.name for item in fields(Profile))
    for name in shown:
        assert response.text.count(f'id="id_{name}"') == 1
    assert list(parameter_groups()) == list(GROUPS.values())
    assert ">When to compact</h2>" in response.text


def test_a_field_says_its_unit_its_range_and_what_it_does(admin_client, mine):
    text = admin_client.get(page_of(mine)).text
    assert '<span class="unit">messages</span>' in text
    assert "more where a tool call would lose its results. 0 to 10,000 messages. " in text


def test_one_of_a_unit_is_no_plural(admin_client, mine):
    response = admin_client.get(page_of(mine))
    field = field_of(response, "max_overflow_compaction_attempts")
    widget = field.field.widget
    for value, unit in (("1", "compaction"), ("2", "compactions"), ("", "compactions")):
        assert f'<span class="unit">{unit}</span>' in widget.render("x", value)
    once = UnitInput("summaries", attrs={"placeholder": "As the preset: 1"})
    assert '<span class="unit">summary</span>' in once.render("x", "")


def test_an_empty_field_shows_what_the_preset_says(admin_client, mine):
    response = admin_client.get(page_of(mine))
    assert 'placeholder="As the preset: 6,000"' in str(field_of(response, "max_context_tokens"))
    assert '<option value="" selected>As the preset: on</option>' in str(
        field_of(response, "enabled")
    )
    assert "As the preset: last_n" in str(field_of(response, "cut"))
    assert "As the preset: the session&#x27;s own" in str(field_of(response, "summary_model"))
    assert 'value="50"' in str(field_of(response, "message_limit"))


def test_a_field_for_any_text_names_no_kind_and_says_when_it_is_empty(admin_client, mine):
    page = admin_client.get(page_of(mine)).text
    assert "by a rule. <code>excluded_bot_types</code>" in page
    assert 'placeholder="As the preset: empty"' in page


def test_an_empty_field_shows_the_variable_that_is_in_force(admin_client, mine, environment):
    environment(SUMMARY_KEEP_LAST_N="3", SUMMARY_MESSAGE_LIMIT="12")
    response = admin_client.get(page_of(mine))
    assert 'placeholder="3 (by SUMMARY_KEEP_LAST_N)"' in str(field_of(response, "keep_last_n"))
    assert "<td>Environment: <code>SUMMARY_KEEP_LAST_N</code></td>" in response.text
    # What the profile sets itself wins, so that variable is in force nowhere.
    assert "<code>SUMMARY_MESSAGE_LIMIT</code>" not in response.text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("keep_last_n", "3", 3),
        ("max_context_tokens", "12,000", 12000),
        ("temperature", "0.7", 0.7),
        ("temperature", "1", 1),
        ("temperature", "none", None),
        ("enabled", "off", False),
        ("window_trigger", "on", True),
        ("cut", "recent_tokens", "recent_tokens"),
        ("summary_model", "default", "default"),
        ("summary_model", "(the session's own)", ""),
    ],
)
def test_a_value_is_stored_and_shown_again(admin_client, mine, name, text, value):
    save(admin_client, mine, **{name: text})
    made = find_profile("mine")
    assert made.version == 2
    assert made.parameters == {"message_limit": 50, name: value}
    again = field_of(admin_client.get(page_of(made)), name).value()
    assert again == text.replace(",", "")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("keep_last_n", "42px", "Must be a whole number."),
        ("keep_last_n", "1.5", "Must be a whole number."),
        ("keep_last_n", "9" * 100, "Must be a whole number."),
        ("keep_last_n", "none", "Must be a whole number."),
        ("keep_last_n", "-1", "Must be from 0 to 10000."),
        ("temperature", "warm", "Must be a number."),
        ("temperature", "nan", "Must be a number."),
        ("temperature", "2.5", "Must be from 0.0 to 2.0."),
        ("enabled", "perhaps", "Must be true or false."),
        ("cut", "half", "Must be one of last_n, recent_tokens, checkpoint, tail_size, tail_chars."),
        ("summary_model", "gpt-9", "No model is called 'gpt-9' here. CHATAPP['MODELS'] has: "),
    ],
)
def test_a_wrong_value_is_refused_at_its_field(admin_client, mine, name, text, sentence):
    response = save(admin_client, mine, **{name: text})
    errors = response.context["adminform"].form.errors
    assert list(errors) == [name]
    assert errors[name][0].startswith(sentence)
    assert f'<ul class="errorlist" id="id_{name}_error">' in response.text
    assert field_of(response, name).value() == text
    assert find_profile("mine").version == 1
    assert check(admin_client, mine, **{name: text})["errors"][name][0].startswith(sentence)


def test_emptying_a_field_goes_back_to_the_preset(admin_client, mine):
    save(admin_client, mine, message_limit="")
    assert find_profile("mine").parameters == {}


def test_a_value_that_the_preset_has_too_is_kept(admin_client, mine):
    # It still counts when a variable says something else.
    save(admin_client, mine, keep_last_n="6")
    assert find_profile("mine").parameters == {"message_limit": 50, "keep_last_n": 6}


@pytest.mark.parametrize(
    "parameters",
    [{"colour": "red", "message_limit": 50}, ["message_limit"], {"enabled": "maybe"}, "x", None],
)
def test_what_an_older_program_stored_is_shown(admin_client, mine, parameters):
    CompactionProfile.objects.filter(pk=mine.pk).update(parameters=Value(parameters, JSONField()))
    newer = save_profile(name="else", parameters={})
    assert admin_client.get(page_of(mine)).status_code == 200
    assert admin_client.get(page_of(newer)).status_code == 200
    assert check(admin_client, mine)["errors"] == {}


def test_a_parameter_that_is_unknown_today_is_told_and_left_out(admin_client, mine):
    stored = {"colour": "red", "message_limit": 50}
    CompactionProfile.objects.filter(pk=mine.pk).update(parameters=stored)
    page = admin_client.get(page_of(mine)).text
    assert "As it is stored: colour: There is no such parameter." in page
    assert "The next version leaves out what is unknown today: colour." in page
    save(admin_client, mine)
    assert find_profile("mine").parameters == {"message_limit": 50}


def test_a_preset_that_is_unknown_today_does_not_break_the_page(admin_client, mine):
    CompactionProfile.objects.filter(pk=mine.pk).update(base="quadsect")
    page = admin_client.get(page_of(mine)).text
    assert "There is no preset &#x27;quadsect&#x27;." in page
    assert 'placeholder="As the preset"' in page


def test_a_wrong_variable_is_told_and_not_taken_for_a_fault_of_a_field(
    admin_client, mine, environment
):
    environment(SUMMARY_TARGET_TOKENS="many")
    page = admin_client.get(page_of(mine))
    sentence = "SUMMARY_TARGET_TOKENS: &#x27;many&#x27; cannot be read as a value of"
    assert sentence in page.text
    answer = check(admin_client, mine)
    assert answer["errors"] == {}
    assert sentence in answer["outcome"]


def test_hostile_texts_are_shown_as_text(admin_client):
    row = save_profile(name="mine", parameters={}, description=ATTACK)
    newer = save_profile(name="mine", parameters={}, description=f"{ATTACK}2")
    CompactionProfile.objects.filter(pk=newer.pk).update(parameters={ATTACK: ATTACK, "cut": ATTACK})
    for address in (page_of(row), page_of(newer), f"{page_of(newer)}?against=1"):
        response = admin_client.get(address)
        assert ATTACK not in response.text
        assert "&lt;script&gt;alert(1)" in response.text
    answer = check(admin_client, newer, description=ATTACK, cut=ATTACK)
    assert ATTACK not in answer["outcome"]


# --- live validation ------------------------------------------------------------------------------

CROSS = "Must be below message_limit (50), or the rule fires when nothing is left to summarise."


def test_a_rule_across_fields_is_told_live_and_by_the_form(admin_client, mine):
    assert check(admin_client, mine, keep_last_n="50")["errors"] == {"keep_last_n": [CROSS]}
    assert check(admin_client, mine, keep_last_n="49")["errors"] == {}
    assert check(admin_client, mine, keep_last_n="50", cut="recent_tokens")["errors"] == {}
    response = save(admin_client, mine, keep_last_n="50")
    assert response.context["adminform"].form.errors == {"keep_last_n": [CROSS]}


def test_live_validation_says_what_saving_comes_to(admin_client, mine):
    answer = check(admin_client, mine, message_limit="60", temperature="none")
    assert answer["said"] == (
        "2 changes: saving makes a new version and leaves version 1 as it is."
    )
    line = "<code>message_limit</code> <bdi>50</bdi> → <bdi>60</bdi></li>"
    assert line in answer["outcome"]
    assert "<code>temperature</code> <bdi>0.2</bdi> → <bdi>none</bdi> (set)" in answer["outcome"]
    unchanged = check(admin_client, mine)
    assert unchanged["said"] == "Nothing is changed: saving leaves version 1 as it is."


def test_live_validation_says_what_empty_fields_mean(admin_client, mine, environment):
    environment(SUMMARY_KEEP_LAST_N="3")
    inherited = check(admin_client, mine)["inherited"]
    assert len(inherited) == len(fields(Profile))
    assert inherited["keep_last_n"] == "3 (by SUMMARY_KEEP_LAST_N)"
    assert inherited["enabled"] == "As the preset: on"


def test_a_new_profile_is_validated_live_too(admin_client):
    address = reverse("admin:compaction_compactionprofile_validate_new")
    answer = admin_client.post(address, {"name": "bisect", "base": "bisect", "keep_last_n": "x"})
    assert answer.json()["errors"] == {
        "name": ["There is a profile 'bisect' already. Open its current version and change that."],
        "keep_last_n": ["Must be a whole number."],
    }


def test_live_validation_writes_nothing(admin_client, mine):
    with CaptureQueriesContext(connection) as queries:
        check(admin_client, mine, message_limit="60")
    assert not [q for q in queries if not q["sql"].startswith("SELECT")]
    assert len(queries) <= 6


def test_live_validation_needs_the_permission_and_a_post(client, mine):
    address = reverse("admin:compaction_compactionprofile_validate", args=[mine.pk])
    new = reverse("admin:compaction_compactionprofile_validate_new")
    assert client.post(address, sent(mine)).status_code == 302
    staff_with(client, "view_compactionprofile", "add_compactionprofile")
    assert client.post(address, sent(mine)).status_code == 403
    assert client.post(new, {}).status_code == 200
    user = get_user_model().objects.get(username="staff")
    user.user_permissions.set(Permission.objects.filter(codename="change_compactionprofile"))
    assert client.post(address, sent(mine)).status_code == 200
    assert client.post(new, {}).status_code == 403
    assert client.get(address).status_code == 405
    gone = reverse("admin:compaction_compactionprofile_validate", args=[10**6])
    assert client.post(gone, {}).status_code == 404


def test_live_validation_needs_the_csrf_token(mine):
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root2"))
    address = reverse("admin:compaction_compactionprofile_validate", args=[mine.pk])
    assert client.post(address, sent(mine)).status_code == 403


# --- saving ---------------------------------------------------------------------------------------


def test_saving_without_a_change_makes_no_version_and_says_so(admin_client, mine):
    response = save(admin_client, mine, _continue="1")
    assert "Nothing was changed: " in told(response)
    assert "was changed successfully" not in told(response)
    assert response.request["PATH_INFO"] == page_of(mine)
    assert CompactionProfile.objects.filter(name="mine").count() == 1


def test_a_version_saved_meanwhile_is_not_overwritten(admin_client, mine):
    save(admin_client, mine, message_limit="60")
    response = save(client_of("other"), mine, message_limit="70")
    errors = response.context["adminform"].form.non_field_errors()
    second = find_profile("mine")
    assert (second.version, second.parameters) == (2, {"message_limit": 60})
    assert len(errors) == 1
    assert f'<a href="{page_of(second)}">Version 2</a> was saved meanwhile by admin' in errors[0]
    assert field_of(response, "message_limit").value() == "70"
    assert "was saved meanwhile by admin" in check(admin_client, mine)["outcome"]


def test_a_version_saved_between_check_and_save_is_not_overwritten(admin_client, mine, monkeypatch):
    second = save_profile(name="mine", parameters={"message_limit": 60})

    def too_early(*arguments) -> None:
        monkeypatch.setattr("compaction.admin.profile_form.refuse_stale", refuse_stale)

    monkeypatch.setattr("compaction.admin.profile_form.refuse_stale", too_early)
    response = save(admin_client, mine, message_limit="70")
    assert "was saved meanwhile" in response.context["adminform"].form.non_field_errors()[0]
    assert field_of(response, "message_limit").value() == "70"
    assert find_profile("mine") == second


def client_of(name: str):
    client = Client()
    client.force_login(get_user_model().objects.create_superuser(name))
    return client


# --- versions -------------------------------------------------------------------------------------


def test_versions_say_what_each_changed(admin_client, mine):
    save(admin_client, mine, message_limit="60", temperature="none")
    second = find_profile("mine")
    save(admin_client, second, message_limit="60", keep_last_n="6")
    third = find_profile("mine")
    first_to_second = [str(each) for each in differences(mine, second)]
    assert first_to_second == ["message_limit 50 → 60", "temperature 0.2 → none (set)"]
    assert [str(each) for each in differences(second, third)] == [
        "keep_last_n 6 → 6 (set)",
        "temperature none → 0.2 (no longer set)",
    ]
    table = admin_client.get(page_of(third)).context["detail_tables"][-1]
    assert table.rows[0][0] == "v3 (this page)"
    assert [row[4] for row in table.rows] == ["admin", "admin", "—"]
    assert [row[2] for row in table.rows][1:] == ["Old", "Old"]
    assert table.rows[1][1] == (
        '<ul class="profile-changes">'
        "<li><code>message_limit</code> <bdi>50</bdi> → <bdi>60</bdi> </li>"
        "<li><code>temperature</code> <bdi>0.2</bdi> → <bdi>none</bdi> (set)</li></ul>"
    )
    assert table.rows[2][1] == "The first version."


def test_any_two_versions_are_compared(admin_client, mine):
    save_profile(name="mine", parameters={"message_limit": 60})
    third = save_profile(name="mine", parameters={"message_limit": 60, "keep_last_n": 3})
    table = admin_client.get(f"{page_of(third)}?against=1").context["comparison"].table
    assert table.title == "From version 1 to version 3"
    assert [list(row) for row in table.rows] == [
        ["<code>message_limit</code>", "<bdi>50</bdi>", "<bdi>60</bdi>", ""],
        ["<code>keep_last_n</code>", "<bdi>6</bdi>", "<bdi>3</bdi>", "set"],
    ]


@pytest.mark.parametrize("asked", ["99", "x", "-1", "²", "9" * 30])
def test_a_version_that_does_not_exist_is_told(admin_client, mine, asked):
    response = admin_client.get(page_of(mine), {"against": asked})
    assert "There is no other version" in response.text


def test_20_versions_are_shown_and_all_can_be_compared(admin_client):
    for number in range(1, 25):
        newest = save_profile(name="mine", parameters={"message_limit": 50 + number})
    response = admin_client.get(page_of(newest))
    assert len(response.context["detail_tables"][-1].rows) == 20
    # The last one shown is compared too.
    assert "The first version." not in response.text
    assert len(response.context["comparison"].offered) == 23


def test_an_old_version_is_restored_as_a_new_one(admin_client, mine):
    second = save_profile(name="mine", parameters={"message_limit": 60, "keep_last_n": 3})
    page = admin_client.get(page_of(mine)).text
    assert "Saves what version 1 says as a new version in the place of version 2. " in page
    assert "message_limit 60 → 50; keep_last_n 3 → 6 (no longer set)." in page
    response = do(admin_client, mine, "restore", opened=second.version)
    third = find_profile("mine")
    assert (third.version, third.parameters) == (3, {"message_limit": 50})
    assert response.request["PATH_INFO"] == page_of(third)
    assert "Version 1 is in force again" in told(response)


def test_an_old_version_is_not_restored_over_one_that_nobody_looked_at(admin_client, mine):
    save_profile(name="mine", parameters={"message_limit": 60})
    save_profile(name="mine", parameters={"message_limit": 70})
    response = do(admin_client, mine, "restore", opened=2)
    assert "Version 3 was saved meanwhile: look at it first." in response.text
    assert find_profile("mine").version == 3


def test_an_old_version_that_cannot_work_today_is_not_restored(admin_client, mine):
    save_profile(name="mine", parameters={})
    CompactionProfile.objects.filter(pk=mine.pk).update(parameters={"keep_last_n": -1})
    response = do(admin_client, mine, "restore", opened=2)
    assert "keep_last_n: Must be from 0 to 10000." in response.text
    assert find_profile("mine").version == 2


# --- reset and default ----------------------------------------------------------------------------


def test_a_profile_is_reset_to_its_preset(admin_client, mine):
    page = admin_client.get(page_of(mine)).text
    assert (
        "the preset bisect counts then. What changes: message_limit 50 → 40 (no longer set)."
        in (page)
    )
    response = do(admin_client, mine, "reset", opened=1)
    second = find_profile("mine")
    assert (second.version, second.parameters, second.base) == (2, {}, "bisect")
    assert "Reset to the preset: " in told(response)
    shown = [each.name for each in admin_client.get(page_of(second)).context["detail_forms"]]
    assert shown == ["default"]


def test_a_profile_without_values_of_its_own_has_nothing_to_reset(admin_client):
    response = admin_client.get(page_of(find_profile()))
    assert response.context["detail_forms"] == []


def test_a_profile_is_made_the_default_from_its_page(admin_client, mine):
    page = admin_client.get(page_of(mine))
    assert "Every session that names no profile uses mine instead of bisect" in page.text
    assert "It is not the default: only sessions that name it use it." in page.text
    do(admin_client, mine, "default", opened=1)
    assert find_profile() == mine
    page = admin_client.get(page_of(mine))
    assert "It is the default: every session that names no profile uses it." in page.text


# --- use ------------------------------------------------------------------------------------------


def branches_naming(owner, name: str, count: int) -> None:
    sessions = Session.objects.bulk_create(
        Session(owner=owner, title=f"Trip {n}") for n in range(count)
    )
    branches = Branch.objects.bulk_create(Branch(session=session) for session in sessions)
    CompactionState.objects.bulk_create(
        CompactionState(branch=branch, profile=name) for branch in branches
    )


def use_of(client, row):
    return client.get(page_of(row)).context["detail_tables"][0]


def test_sessions_that_name_the_profile_are_listed(admin_client, owner, mine):
    session = SessionFactory(owner=owner, title="Boots")
    assign_profile(session, "mine")
    SessionFactory(owner=owner, title="Else")
    table = use_of(admin_client, mine)
    assert [row[0] for row in table.rows] == [f'<a href="{page_of(session)}">Boots</a>']
    assert table.more is None


def test_20_of_many_sessions_are_listed_with_the_way_to_all(admin_client, owner, mine):
    branches_naming(owner, "mine", 25)
    branches_naming(owner, "else", 2)
    table = use_of(admin_client, mine)
    assert len(table.rows) == 20
    assert "Branches that name it: 25. The first 20:" in table.note
    assert len(admin_client.get(table.more.url).context["cl"].result_list) == 25


def runs_of(session, row, count: int) -> list[CompactionRun]:
    words = {"trigger": "manual", "reason": "manual", "mode": "inline", "status": "skipped"}
    return [
        CompactionRun.objects.create(session=session, branch=session.branch, profile=row, **words)
        for _ in range(count)
    ]


def test_the_newest_runs_of_exactly_this_version_are_listed(admin_client, owner, mine):
    session = SessionFactory(owner=owner)
    runs_of(session, mine, 11)
    newer = save_profile(name="mine", parameters={})
    runs = runs_of(session, newer, 12)
    table = admin_client.get(page_of(newer)).context["detail_tables"][1]
    shown = [row[0] for row in table.rows]
    assert len(shown) == 10
    assert page_of(runs[-1]) in shown[0]
    assert page_of(runs[-10]) in shown[-1]
    assert f"profile__id__exact={newer.pk}" in table.more.url


# --- costs and permissions ------------------------------------------------------------------------


def test_the_page_costs_the_same_however_much_there_is(admin_client, owner, mine):
    session = SessionFactory(owner=owner)
    counts = []
    for rows in (1, 30):
        branches_naming(owner, "mine", rows)
        runs_of(session, mine, rows)
        for number in range(rows):
            row = save_profile(name="grown", parameters={"message_limit": 100 + rows + number})
        save_profile(name="grown", parameters={"message_limit": 50})
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(page_of(mine)).status_code == 200
        with CaptureQueriesContext(connection) as old:
            assert admin_client.get(page_of(row), {"against": 1}).status_code == 200
        counts.append((len(queries), len(old)))
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 20


def test_who_may_only_look_sees_values_and_no_form(client, mine):
    staff_with(client, "view_compactionprofile")
    response = client.get(page_of(mine))
    assert 'name="message_limit"' not in response.text
    assert "profile-outcome" not in response.text
    assert response.context["detail_forms"] == []
    rows = {str(row[0]): row for row in response.context["detail_tables"][0].rows}
    assert list(rows["<code>message_limit</code>"][1:3]) == ["<bdi>50</bdi>", "Set here"]
    assert list(rows["<code>keep_last_n</code>"][1:3]) == ["<bdi>6</bdi>", "Preset bisect"]
    assert client.post(page_of(mine), sent(mine, message_limit="60")).status_code == 403
    for name in ("default", "reset", "restore"):
        assert do(client, mine, name, opened=1).status_code == 403
    assert find_profile("mine") == mine


def test_an_old_version_is_read_and_says_so(admin_client, mine):
    save_profile(name="mine", parameters={})
    make_default("mine")
    response = admin_client.get(page_of(mine))
    assert "An old version can only be read, or restored as a new one." in response.text
    assert "Sessions use the current version" in response.text
    assert 'name="message_limit"' not in response.text


def test_no_second_profile_is_offered_while_one_is_saved(admin_client):
    row = find_profile()
    for address in (page_of(row), reverse("admin:compaction_compactionprofile_add")):
        page = admin_client.get(address).text
        assert 'name="_save"' in page
        assert 'name="_addanother"' not in page
