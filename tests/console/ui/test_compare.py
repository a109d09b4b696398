"""Page that compares two deployments: errors can be corrected in its form."""

from __future__ import annotations

from receiver.console.ui.pages.compare import OFFERED_MAX
from tests.console.ui.conftest import HOSTILE, Client
from tests.console.ui.test_pages import Document, page_of
from tests.support.cases import each_case


def fields_of(page: Document) -> dict[str | None, str | None]:
    """Return the values of the form, which is above the error."""
    main = page.elements[[tag for tag, _ in page.elements].index("main") :]
    before = main[: [attributes.get("role") for _, attributes in main].index("alert")]
    return {attributes["name"]: attributes["value"] for tag, attributes in before if tag == "input"}


def offered(page: Document) -> list[str]:
    """Return the links of the error, which is above the list of deployments."""
    roles = [attributes.get("role") for _, attributes in page.elements]
    after = page.elements[roles.index("alert") :]
    before = after[: [tag for tag, _ in after].index("table")]
    return [attributes["href"] or "" for tag, attributes in before if tag == "a"]


@each_case(
    ("query", "side", "corrected"),
    [("a=dpl_1&b=nonsense", "B", "a=dpl_1&b=dpl_2"), ("a=nonsense&b=dpl_1", "A", "a=dpl_2&b=dpl_1")],
)
async def test_deployment_without_spans_can_be_corrected(
    site: Client, query: str, side: str, corrected: str
) -> None:
    page = await page_of(site, f"/compare?{query}&project=prj_1", 400)

    assert (
        f"Deployment {side} has no spans in this time range with the chosen project. "
        "Choose a longer range, or one of: dpl_2."
    ) in page.text
    assert "nonsense" in fields_of(page).values()
    (link,) = offered(page)
    assert corrected in link
    assert "Operations of both" in (await page_of(site, link)).text


async def test_newest_deployments_are_offered(site: Client) -> None:
    page = await page_of(site, "/compare?a=dpl_1&b=nonsense", 400)

    assert "Deployment B has no spans in this time range. Choose a longer range, or one of: " in page.text
    assert len(offered(page)) == OFFERED_MAX
    assert any(text in page.text for text in HOSTILE)
    assert not page.tags & {"img"}


async def test_error_of_another_parameter_leaves_the_form(site: Client) -> None:
    page = await page_of(site, "/compare?a=dpl_1&b=dpl_1", 400)

    assert "B: expected another deployment than a." in page.text
    assert fields_of(page).items() >= {"a": "dpl_1", "b": "dpl_1"}.items()
