"""Finds the cause of a failure from an HTTP status, an error message or a line of output. Pure module.

There are three entry points, from certain to uncertain. `of_status` takes a number known to be an HTTP
status. `of_message` takes a text known to be an error message. `of_line` takes any output line, and considers
only lines that begin like an error, because agents often write about errors. The rows are in order, and the
first match decides: "usage limit" comes before "429".
"""

import re
from typing import Final

from holdfast.agents.evidence.evidence import Failure, Trouble

MAX_MESSAGE = 2000  # characters looked at; causes come first, dumps after


def _row(failure: Failure, phrases: str) -> tuple[Failure, re.Pattern[str]]:
    """Compile the phrases, one pattern per line; each must match at the beginning of a word."""
    each = (line.strip() for line in phrases.strip().splitlines())
    return failure, re.compile(rf"\b(?:{'|'.join(each)})", re.IGNORECASE)


# These outrank an HTTP status: providers send them with 400, 402, 403, 413 and 429 alike.
_OVER_STATUS: Final = (
    _row(
        Failure.CONTEXT,
        r"""
        context_length_exceeded
        prompt[_ ](?:is[_ ])?too[_ ]long\b
        longer than this model
        ran out of room in the model.s context
        maximum context length
        context window\b[^.]{0,40}\bexceed
        input token count\b[^.]{0,60}\bexceeds
        ContextWindowExceededError
        reason: max_output_tokens
        """,
    ),
    _row(
        Failure.QUOTA,
        r"""
        insufficient_quota
        billing_error
        quota exceeded
        exceeded your current quota
        no quota left
        usage limit
        check your plan and billing
        insufficient (?:balance|credits?)
        credit balance
        payment required
        """,
    ),
    _row(
        Failure.REFUSAL,
        r"""
        content[ _-]?filter
        content_policy
        model refused
        """,
    ),
)
_WORDED: Final = (
    _row(
        Failure.CONFIGURATION,
        r"""
        Error:? loading config
        Config file at \S{1,300} is not valid
        Error in \S{1,300}\bsettings\.json\b
        (?:cannot|could not|failed to) (?:read|parse|load)\b[^\n]{0,300}\b(?:settings|config)\.\w{2,5}\b
        """,
    ),
    _row(
        Failure.PERMISSION,
        r"""
        auto-rejecting
        rejected permission
        no interactive user response
        denied permission
        haven't granted it yet
        requires approval
        needs approval
        approval required in non-interactive mode
        denied by (?:policy|user)
        """,
    ),
    _row(
        Failure.LIMIT,
        r"""
        loop detect(?:ed|ion)
        """,
    ),
    _row(
        Failure.STATE,
        r"""
        database is locked
        SQLITE_BUSY
        Failed query:
        """,
    ),
    _row(
        Failure.MEMORY,
        r"""
        JavaScript heap out of memory
        Allocation failed - JavaScript heap
        ENOMEM\b
        cannot allocate memory
        MemoryError\b
        out of memory\b
        """,
    ),
    _row(
        Failure.SANDBOX,
        r"""
        EROFS\b
        read-only file system
        (?:os error|Errno) 30\b
        SQLITE_(?:READONLY|CANTOPEN)
        unable to open database file
        readonly database
        ENOENT\b[^\n]{0,80}\bmkdir\b
        app-server closed
        operation not permitted
        (?:EPERM|EACCES)\b
        Errno 13\b
        Unknown: FileSystem\.\w+ \(
        """,
    ),
    _row(
        Failure.MODEL,
        r"""
        model_not_found
        issue with the selected model
        not found on provider
        ModelNotFound
        model\b[^\n]{0,120}?\b(?:does not exist|not found|is not supported|is not available)\b
        """,
    ),
)
_AFTER_STATUS: Final = (
    _row(
        Failure.PROVIDER,
        r"""
        stream (?:disconnected|closed before|ended (?:without|before))
        connection to the api was lost
        (?:currently )?experiencing high demand
        empty or malformed response
        JSON parse error
        unexpected end of JSON
        without a finish reason
        empty response
        overloaded
        internal server error
        server had an error
        InternalServerError
        server_error
        service unavailable
        servers are down
        bad gateway
        premature close
        incomplete chunked read
        """,
    ),
    _row(
        Failure.NETWORK,
        r"""
        (?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)\b
        waiting for network
        (?:cannot|could not|unable to|failed to) connect\b
        connection (?:error|failed)
        name resolution
        fetch failed
        error sending request
        typo in the url or port
        getaddrinfo\b
        self[- ]signed certificate
        (?:SELF_SIGNED_CERT|DEPTH_ZERO_SELF_SIGNED_CERT|CERT_HAS_EXPIRED|ERR_TLS_)
        UNABLE_TO_(?:VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT)
        unable to (?:verify the first certificate|get (?:local )?issuer certificate)
        certificate (?:verify failed|has expired|is not (?:yet )?valid)
        invalid peer certificate
        unknown certificate verification error
        (?:TLS|SSL) handshake
        wrong version number
        """,
    ),
    _row(
        Failure.AUTH,
        r"""
        (?:invalid|incorrect)[ _]api[ _]key
        api key not valid
        authentication_(?:error|failed)
        AuthenticationError
        (?:failed|not able) to authenticate
        authentication failed
        please run /login
        UNAUTHENTICATED\b
        permission_error
        PermissionDeniedError
        set an auth method
        not logged in
        no provider configured
        no authentication information
        missing (?:api key|environment variable: `?\w*KEY)
        """,
    ),
    _row(
        Failure.RATE_LIMIT,
        r"""
        rate[ _-]?limit
        RESOURCE_EXHAUSTED\b
        too many requests
        exceeded retry limit
        """,
    ),
    _row(
        Failure.CONFIGURATION,
        r"""
        unexpected argument
        unknown (?:option|argument|provider)
        BadRequestError
        """,
    ),
)
# A number counts only after words that introduce a status, and only whole: not "15290ms" or "line 401".
_STATUS: Final = re.compile(
    r"(?:^|\b(?:status(?: code)?|http(?:/[\d.]+)?|(?:api )?error(?: code)?|code|rejected)\"?[:=]?\s*\(?|\()"
    r"([45]\d\d)(?![\w.,]*\d|\w)",
    re.IGNORECASE,
)
_ESCAPES: Final = re.compile(r"\x1b\[[\d;?]{0,32}[A-Za-z]|\r")
# How the CLIs begin a line that reports an error of their own.
_ERROR_LINE: Final = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ]\S+ )?(?:\u26a0\ufe0f?|[\u2717\u2718\u00d7\u274c])?\s?(?:"
    r"(?:ERROR|Error|error|FATAL|FATAL ERROR|fatal|CRITICAL)(?: \[[\w.]+\])?: (?=\S)"
    r"|\[ERROR\] |\[(?:API )?Error: "
    r"|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?: \[\w+\])?: "
    r"|(?:E[A-Z]{3,12}|Unknown): (?=\S)"
    r"|Failed to authenticate\.|API Error: |API call failed|Error when talking to "
    r"|An unexpected critical error|Failed query: "
    r"|Attempt \d+ failed|Request rejected \(|There's an issue with the selected model"
    r"|Prompt is too long|Connection to the API was lost|API returned an empty or malformed response"
    r"|Could not connect to |Cannot connect to API|Authentication failed"
    r"|The API provider(?:'s servers| has| is) "
    r"|Empty response received from LLM|HTTP [45]\d\d: |Connection error\.$|Non-retryable error"
    r"|(?:Failed to [^:\n]{1,200}|[A-Z][a-z]+(?: [a-z]+){1,4} failed): (?:Error: )?(?=E[A-Z]{3,12}: )"
    r"|Error loading config\b|Config file at \S{1,300} is not valid|Error in \S{1,300}\.json: "
    r"|! permission requested: |initialize failed: |Failed to extract bundled package: |Invalid API key"
    r")"
)


def of_status(http: int, message: str = "") -> Failure | None:
    """Return the failure that a provider's HTTP status means.

    With 404, the message distinguishes a missing model from a wrong address.
    """
    for failure, pattern in _OVER_STATUS:
        if pattern.search(message[:MAX_MESSAGE]):
            return failure
    match http:
        case 401 | 403:
            return Failure.AUTH
        case 402:
            return Failure.QUOTA
        case 404:
            return Failure.MODEL if "model" in message.lower() else Failure.CONFIGURATION
        case 413:
            return Failure.CONTEXT
        case 429:
            return Failure.RATE_LIMIT
        case 400 | 405 | 407 | 415 | 422:
            return Failure.CONFIGURATION
        case _:
            return Failure.PROVIDER if 500 <= http <= 599 or http == 408 else None


def of_message(message: str, http: int | None = None) -> Trouble | None:
    """Return the failure that an error message means; None if no pattern matches."""
    text = message[:MAX_MESSAGE]
    if http is not None:
        failure = of_status(http, text)
        return None if failure is None else Trouble(failure, http)
    said = _STATUS.search(text)
    status = int(said[1]) if said else None
    for failure, pattern in (*_OVER_STATUS, *_WORDED):
        if pattern.search(text):
            return Trouble(failure, status)
    if status is not None and (known := of_status(status, text)) is not None:
        return Trouble(known, status)
    for failure, pattern in _AFTER_STATUS:
        if pattern.search(text):
            return Trouble(failure)
    return None


def begins_as_error(line: str) -> bool:
    """Return whether the line begins the way the CLIs begin their errors."""
    return _ERROR_LINE.match(_ESCAPES.sub("", line[:MAX_MESSAGE])) is not None


def of_line(line: str) -> Trouble | None:
    """Return the failure that an output line reports, if it begins the way the CLIs begin their errors."""
    text = _ESCAPES.sub("", line[:MAX_MESSAGE])
    begun = _ERROR_LINE.match(text)
    if begun is None:
        return None
    # "Error: 401 …": a status counts at the beginning of the message, too.
    return of_message(text) or of_message(text[begun.end() :].lstrip())
