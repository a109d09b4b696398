"""Cases of a test: a table as one test that reports every failing case, and the number of random cases."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

import pytest

RANDOM_CASES: Final = int(os.environ.get("RANDOM_CASES", "20"))
"""Random cases of a test with the marker `random_cases`: few in `make test`, 200 in `make test-faults`."""

PARAMETERS = type(pytest.param())
Test = Callable[..., Any]


class FailedCases:
    """Failures of the cases of a table, which are raised together."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._cases = 0

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Run a case. Keep its failure for later, so that the next case runs."""
        self._cases += 1
        try:
            yield
        # `pytest.fail` raises no `Exception`.
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error is a failed case
            error.add_note(f"failed case: {name}")
            self._errors.append(error)

    def raise_all(self) -> None:
        """Raise all failures."""
        assert self._cases, "the table has no case"
        if self._errors:
            raise BaseExceptionGroup(f"{len(self._errors)} of {self._cases} cases failed", self._errors)


def each_case(
    names: str | Sequence[str], cases: Iterable[Any], ids: Callable[[Any], str] | Iterable[str] = repr
) -> Callable[[Test], Test]:
    """Run all cases of a table in one test. Takes what `pytest.mark.parametrize` takes, without marks.

    The cases share the fixtures of the test, so that it takes less time than a test for each case.
    """
    keys = [names] if isinstance(names, str) else list(names)
    table = [
        case if isinstance(case, PARAMETERS) else pytest.param(*([case] if len(keys) == 1 else case))
        for case in cases
    ]
    texts = [", ".join(map(ids, case.values)) for case in table] if callable(ids) else list(ids)

    def arguments() -> Iterator[tuple[str, dict[str, Any]]]:
        for case, text in zip(table, texts, strict=True):
            yield str(case.id or text), dict(zip(keys, case.values, strict=True))

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:  # noqa: ANN401 - as the test
            failed = FailedCases()
            for name, values in arguments():
                with failed.case(name):
                    test(**fixtures, **values)
            failed.raise_all()

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:  # noqa: ANN401 - as the test
            failed = FailedCases()
            for name, values in arguments():
                with failed.case(name):
                    await test(**fixtures, **values)
            failed.raise_all()

        wrapper: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        wrapper.__signature__ = signature.replace(parameters=others)
        decorated: Test = wrapper
        return decorated

    return decorate
