"""Errors of calls to the platform and to its gateway, as one tree. Each text has the action.

PlatformError
├── NotSent                  the call is wrong, and nothing was sent
│   ├── TeamMissing              ├── AddressMissing
│   └── InvalidCall
├── Rejected                 the same call fails again until an operator changes something
│   ├── InvalidRequest (400)     ├── NotAuthorized (401)
│   ├── CodeRejected             ├── Forbidden (403)
│   ├── NotFound (404)           │   └── ConfigurationDisabled
│   └── Redirected (3xx)
├── TryLater                 the same call may succeed later
│   ├── RateLimited (429)        ├── ServerFailed (5xx)
│   └── Unreachable              └── TimedOut
└── WrongAnswer              the response differs from the specification
    ├── NotJson                  ├── AnswerTooLarge
    ├── WrongShape               └── AnswerCut

Other packages may import these classes: they decide what to do from the class.
"""

from __future__ import annotations

from typing import ClassVar

from receiver.errors import CommandFailed, OperatorError


class PlatformError(CommandFailed):
    """A call failed. The text holds no secret."""

    def __init__(self, reason: str, *, status: int | None = None, code: str = "", advice: str = "") -> None:
        super().__init__(f"{reason}; {advice}" if advice else reason)
        self.reason = reason
        """The text without its advice, which calls that must not be repeated replace."""
        self.status = status
        """HTTP status of the answer; `None` if there was none."""
        self.code = code
        """Error code in the answer; empty if there was none."""


class NotSent(PlatformError):  # noqa: N818 - a verdict, not an accident
    """The call is wrong, and nothing was sent."""

    exit_code: ClassVar[int] = OperatorError.exit_code


class TeamMissing(NotSent):
    """The call is for a team, and no team is configured."""


class AddressMissing(NotSent):
    """No usable address, token or key is configured."""


class InvalidCall(NotSent):
    """An argument of the call is not valid."""


class Rejected(PlatformError):  # noqa: N818 - a verdict, not an accident
    """The same call fails again until an operator changes something."""


class InvalidRequest(Rejected):
    """400: a value in the request is not valid."""


class CodeRejected(Rejected):
    """The code of an installation was used before, has expired, or is not valid."""


class NotAuthorized(Rejected):
    """401: the token is missing, wrong or revoked."""


class Forbidden(Rejected):
    """403: the token may not access the resource."""


class ConfigurationDisabled(Forbidden):
    """403 with its code: the configuration of the integration is disabled, and every call fails."""


class NotFound(Rejected):
    """404: no such resource, or not visible to the token."""


class Redirected(Rejected):
    """3xx: the address is not that of the API. The token is not sent to another address."""


class TryLater(PlatformError):  # noqa: N818 - a verdict, not an accident
    """The same call may succeed later."""

    retry_after_s: float | None = None
    """Seconds until the next attempt, if the answer has them."""


class RateLimited(TryLater):
    """429: too many calls."""


class ServerFailed(TryLater):
    """5xx: the server failed."""


class Unreachable(TryLater):
    """No connection, or it was closed before the answer."""


class TimedOut(TryLater):
    """No answer in time."""


class WrongAnswer(PlatformError):  # noqa: N818 - a verdict, not an accident
    """The response differs from the specification."""


class NotJson(WrongAnswer):
    """The answer, or a line of it, is not JSON."""


class WrongShape(WrongAnswer):
    """JSON without a field that the specification requires, or with one of another type."""


class AnswerTooLarge(WrongAnswer):
    """The answer, or a line of it, is larger than the limit."""


class AnswerCut(WrongAnswer):
    """The response is incomplete."""
