"""The sliding window: how many messages wait, how many go at once, where they end.

`tail` messages stay verbatim; what is older and not summarised yet *waits*.
`compression_cooldown_sec` is a maximum age, whatever its name says: it makes a run due, it never
holds one back.
"""

from __future__ import annotations

from collections.abc import Sequence

from compaction.engine.parameters import Profile
from compaction.engine.policy.groups import LegalCuts, MoreItemsNeeded, open_call
from compaction.engine.types import Item, Plan

# "2", "yes, both", "the second one": what it answers must be read together with it.
SHORT_REPLY_CHARS = 20
# So many messages a fallback digest may take, also where a profile's batches are smaller.
LEAST_DIGEST_LIMIT = 60
# How many messages further back the turn may begin that such a reply belongs to.
REPLY_REACH = 6


def waiting_messages(profile: Profile, messages: int) -> int:
    """Return how many of the messages since the last summary have left the tail."""
    return max(0, messages - profile.tail)


def falls_out(profile: Profile, messages: int) -> bool:
    """Whether a request would leave out messages that no summary has read."""
    return profile.enabled and 0 < profile.context_size < messages


def is_at_hard_limit(profile: Profile, messages: int) -> bool:
    """Whether the next request has to wait until something is summarised."""
    limit = profile.compression_hard_limit
    return falls_out(profile, messages) or 0 < limit <= waiting_messages(profile, messages)


def ages(profile: Profile, messages: int) -> bool:
    """Whether so many wait that the maximum age counts; less is not worth a run."""
    return (
        profile.compression_cooldown_sec > 0
        and waiting_messages(profile, messages) >= profile.minimum_batch
    )


def batch_size(profile: Profile, *, waiting: int, failures: int) -> int:
    """Return how many of the waiting messages go at once.

    After failures the batch gets smaller each time: what makes a summariser fail may be one
    message, and the others should not wait for it. A fallback digest of a few short messages may
    not be smaller than they are: after each one that could not be stored, the next takes twice as
    many.
    """
    whole = min(waiting, profile.batch_messages or waiting)
    if uses_digest(profile, failures):
        most = digest_limit(profile, waiting)
        return digest_size(profile, failures=failures, whole=most)
    first = profile.smaller_after_failures
    if not first or failures < first:
        return whole
    return max(1, whole >> (failures - first + 1))


def digest_limit(profile: Profile, waiting: int) -> int:
    """Return how many of the waiting messages a fallback digest may take.

    A few short ones may make no smaller fallback digest, however small a profile's batches are.
    """
    limit = max(profile.batch_messages, LEAST_DIGEST_LIMIT) if profile.batch_messages else waiting
    return min(waiting, limit)


def digest_size(profile: Profile, *, failures: int, whole: int) -> int:
    """Return how many messages a fallback digest takes, of `whole` that it may take."""
    if not profile.smaller_after_failures:
        return whole
    # Whoever stored one left fewer failures than this: more of them are fallback digests that
    # failed.
    failed = failures - profile.digest_after_failures
    return min(whole, profile.minimum_batch << min(failed, 20))


def is_last_resort(profile: Profile, *, waiting: int, failures: int) -> bool:
    """Whether after one more failure the next attempt would be the same as this one.

    Until then failures lead on: to smaller batches, to fallback digests, to larger fallback
    digests.
    """
    if profile.digest_after_failures and not uses_digest(profile, failures):
        return False
    if profile.smaller_after_failures > failures:
        return False
    sizes = (batch_size(profile, waiting=waiting, failures=failures + n) for n in (0, 1))
    return len(set(sizes)) == 1


def uses_digest(profile: Profile, failures: int) -> bool:
    """Whether the next batch is stored as a digest, because its summariser keeps failing."""
    return 0 < profile.digest_after_failures <= failures


def keep_tail(items: Sequence[Item], tail: int, *, earlier: int = 0) -> Plan:
    """Keep the last `tail` items and summarise those before them.

    The end lies between groups. One that would leave nothing, or less than half, goes forward to
    the next legal place, as far as there are waiting items; where there is none, nothing more is
    summarised yet.

    `earlier` is how many items stand before these. Raises MoreItemsNeeded.
    """
    end = max(0, len(items) - max(1, tail))
    last = open_call(items, earlier=earlier > 0)
    cuts = LegalCuts.of(items, earlier=earlier > 0)
    cut = _last_before(items, cuts, min(end, last))
    if 2 * (earlier + cut) < earlier + end:
        # Before a long group hardly anything may be left, which would never get smaller.
        cut = cuts.first(end, min(last, earlier + 2 * end)) or cut
    return Plan(summarise=tuple(items[:cut]), keep=tuple(items[cut:]))


def first_batch(items: Sequence[Item], size: int, *, later: bool = False) -> Sequence[Item]:
    """Return the oldest `size` items to summarise, or a few less or more.

    A batch ends between groups, too; a group that is larger goes whole. `later` says that more
    items to summarise follow. Raises MoreItemsNeeded.
    """
    if len(items) <= size:
        if later:
            raise MoreItemsNeeded
        return items
    if size < 1:
        return items[:0]
    cuts = LegalCuts.of(items, later=later)
    return items[: _last_before(items, cuts, size) or cuts.first(size, len(items)) or len(items)]


def _last_before(items: Sequence[Item], cuts: LegalCuts, goal: int) -> int:
    """Return the last legal cut up to the goal, 0 for none.

    Where it would part a short reply from what it answers, a turn that begins a little earlier is
    kept with them. Where people always write that little, nothing is gained by going back.
    """
    last = cuts.last(goal)
    if not last or not _is_short_reply(items, last):
        return last
    nearest = max(1, last - REPLY_REACH)
    for cut in range(last - 1, nearest - 1, -1):
        begins = cut in cuts.places and items[cut].role == "user"
        if begins and not _is_short_reply(items, cut):
            return cuts.settled(cut)
    if cuts.is_end and last <= REPLY_REACH:
        raise MoreItemsNeeded
    return last


def _is_short_reply(items: Sequence[Item], cut: int) -> bool:
    reply = items[cut]
    return (
        reply.is_question
        and items[cut - 1].role == "assistant"
        and not reply.images
        and len(reply.text.strip()) <= SHORT_REPLY_CHARS
    )
