"""The kinds of failures of a model call, what is done about each, and what people are told."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType


class ErrorKind(enum.Enum):
    """What went wrong. The reactions differ, so the kinds do."""

    CONTEXT_OVERFLOW = "context_overflow"
    # One request holds more tokens than the server allows in a minute: waiting never helps.
    REQUEST_OVER_RATE = "request_over_rate_limit"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    # The server works, and this one answer came to nothing: another one may do.
    BROKEN_ANSWER = "broken_answer"
    OUTPUT_LIMIT = "output_limit"
    TOO_MANY_MESSAGES = "too_many_messages"
    MESSAGE_TOO_LONG = "message_too_long"
    BODY_TOO_LARGE = "body_too_large"
    BROKEN_PAIRS = "broken_pairs"
    STATE_LOST = "state_lost"
    PARTS_REFUSED = "parts_refused"
    PARAMETER_REFUSED = "parameter_refused"
    WRONG_WIRE = "wrong_wire"
    ROLE_ORDER = "role_order"
    SYSTEM_ORDER = "system_order"
    ARGUMENTS_REFUSED = "arguments_refused"
    IDS_REFUSED = "ids_refused"
    TOOLS_REFUSED = "tools_refused"
    THOUGHTS_REFUSED = "thoughts_refused"
    AUTHENTICATION = "authentication"
    REGION_REFUSED = "region_refused"
    QUOTA = "quota"
    CONTENT_FILTER = "content_filter"
    NOT_CONFIGURED = "not_configured"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    BAD_ANSWER = "bad_answer"


class Reaction(enum.Enum):
    """What can be done about a failure. A kind without one of its own is reported."""

    RECOVERY = "recovery"
    WAIT = "wait"
    LOWER_OUTPUT = "lower_output"
    CUT_MESSAGE = "cut_message"
    DROP_IMAGES = "drop_images"
    GO_STATELESS = "go_stateless"
    ADAPT = "adapt"
    REPORT = "report"


REACTIONS: Mapping[ErrorKind, Reaction] = MappingProxyType(
    {
        ErrorKind.CONTEXT_OVERFLOW: Reaction.RECOVERY,
        ErrorKind.REQUEST_OVER_RATE: Reaction.RECOVERY,
        ErrorKind.TOO_MANY_MESSAGES: Reaction.RECOVERY,
        ErrorKind.RATE_LIMITED: Reaction.WAIT,
        ErrorKind.UNAVAILABLE: Reaction.WAIT,
        ErrorKind.TIMEOUT: Reaction.WAIT,
        ErrorKind.BROKEN_ANSWER: Reaction.WAIT,
        ErrorKind.OUTPUT_LIMIT: Reaction.LOWER_OUTPUT,
        ErrorKind.MESSAGE_TOO_LONG: Reaction.CUT_MESSAGE,
        ErrorKind.BODY_TOO_LARGE: Reaction.DROP_IMAGES,
        ErrorKind.STATE_LOST: Reaction.GO_STATELESS,
        ErrorKind.BROKEN_PAIRS: Reaction.ADAPT,
        ErrorKind.PARTS_REFUSED: Reaction.ADAPT,
        ErrorKind.PARAMETER_REFUSED: Reaction.ADAPT,
        ErrorKind.WRONG_WIRE: Reaction.ADAPT,
        ErrorKind.ROLE_ORDER: Reaction.ADAPT,
        ErrorKind.SYSTEM_ORDER: Reaction.ADAPT,
        ErrorKind.ARGUMENTS_REFUSED: Reaction.ADAPT,
        ErrorKind.IDS_REFUSED: Reaction.ADAPT,
        ErrorKind.TOOLS_REFUSED: Reaction.ADAPT,
        ErrorKind.THOUGHTS_REFUSED: Reaction.ADAPT,
        ErrorKind.REJECTED: Reaction.ADAPT,
    }
)

SENTENCES: Mapping[ErrorKind, str] = MappingProxyType(
    {
        ErrorKind.CONTEXT_OVERFLOW: (
            "The request is larger than the model's context window. Shorten the message, start a "
            "new session, or use a model with a larger window."
        ),
        ErrorKind.REQUEST_OVER_RATE: (
            "The request holds more tokens than the model server allows in a minute, so waiting "
            "does not help. Shorten the message, start a new session, or raise the server's limit."
        ),
        ErrorKind.RATE_LIMITED: "The model server asks to slow down. Try again in a while.",
        ErrorKind.UNAVAILABLE: (
            "The model server cannot be reached or is overloaded. Try again later."
        ),
        ErrorKind.TIMEOUT: "The model server did not answer in time. Try again later.",
        ErrorKind.BROKEN_ANSWER: (
            "The model's answer broke off, or was one that its own server could not use, so it "
            "does not count. Try again, or use another model."
        ),
        ErrorKind.OUTPUT_LIMIT: (
            "The model cannot write answers of the length that was asked for. Set "
            "OPENAI_MAX_OUTPUT to what the model allows."
        ),
        ErrorKind.TOO_MANY_MESSAGES: (
            "The conversation has more messages than the model server takes at once. Compact the "
            "session, or start a new one."
        ),
        ErrorKind.MESSAGE_TOO_LONG: (
            "One message is longer than the model server takes. Send it in pieces, or start a new "
            "session without it."
        ),
        ErrorKind.BODY_TOO_LARGE: (
            "The request has more bytes than the model server takes. Send fewer or smaller "
            "images, or start a new session."
        ),
        ErrorKind.BROKEN_PAIRS: (
            "The model server found tool calls and results that do not belong together. Start a "
            "new session, or fork this one before the tool calls."
        ),
        ErrorKind.STATE_LOST: (
            "The model server no longer knows the earlier part of the conversation. Send the "
            "message again; the whole history is then sent."
        ),
        ErrorKind.PARTS_REFUSED: (
            "The model server does not take messages made of these parts. Send plain text, or use "
            "another model."
        ),
        ErrorKind.PARAMETER_REFUSED: (
            "The model server does not take one of the request's parameters. Say so in the "
            "CAPABILITIES of the model's entry, or use another model."
        ),
        ErrorKind.WRONG_WIRE: (
            "The model is not offered over this API. Set the session's api to the other one, or "
            "use another model."
        ),
        ErrorKind.ROLE_ORDER: (
            "The model server does not take the messages in this order of roles. Start a new "
            "session, or use another model."
        ),
        ErrorKind.SYSTEM_ORDER: (
            "The model server does not take the system messages as they stand. Set "
            "OPENAI_SINGLE_SYSTEM_MESSAGE, or use another model."
        ),
        ErrorKind.ARGUMENTS_REFUSED: (
            "The model server cannot read the arguments of an earlier tool call. Fork the session "
            "before that call, or start a new one."
        ),
        ErrorKind.IDS_REFUSED: (
            "The model server does not accept the ids of earlier tool calls. Start a new session, "
            "or use another model."
        ),
        ErrorKind.TOOLS_REFUSED: (
            "The model server does not take tools or earlier tool calls. Use a model that does, or "
            "send the session without tools."
        ),
        ErrorKind.THOUGHTS_REFUSED: (
            "The model server does not accept the reasoning of earlier answers. Start a new "
            "session, or use another model."
        ),
        ErrorKind.AUTHENTICATION: "The model server refused the key. Check OPENAI_API_KEY.",
        ErrorKind.REGION_REFUSED: (
            "The model server does not serve this model to the country or region that it was asked "
            "from, so asking again does not help. Use another model or server."
        ),
        ErrorKind.QUOTA: (
            "The account at the model server has no credit or quota left, so waiting does not "
            "help. Check its billing, or use another model."
        ),
        ErrorKind.CONTENT_FILTER: (
            "The model server's content filter refused the conversation. Word the message "
            "differently, or start a new session."
        ),
        ErrorKind.NOT_CONFIGURED: "No key for the model server is set. Set OPENAI_API_KEY.",
        ErrorKind.REJECTED: (
            "The model server refused the request. Check the model's settings, or use another "
            "model."
        ),
        ErrorKind.CANCELLED: "The turn was cancelled. Send the message again to go on.",
        ErrorKind.BAD_ANSWER: (
            "The model server's answer cannot be read. Try again, or check OPENAI_BASE_URL."
        ),
    }
)
