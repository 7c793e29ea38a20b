"""The API's reference page: every operation with its curl command, without external resources."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect


def test_an_operation_opens_by_its_link_and_its_curl_line_is_copied(page, server, sign_in, people):
    sign_in(people.alice)
    page.keyboard.press("g")
    page.keyboard.press("x")
    expect(page.get_by_role("heading", name="API 1.0.0")).to_be_visible()
    page.get_by_role("navigation", name="Contents").get_by_role("link", name="Verify a program").click()
    operation = page.locator("#verify_program")
    expect(operation).to_have_attribute("open", "")
    expect(operation.get_by_role("region", name="Body, as JSON")).to_contain_text("program_source required")
    expect(operation.locator("pre")).to_contain_text(f'"{server}/api/v1/verifications"')
    operation.get_by_role("link", name="VerificationResult").click()
    expect(page.locator("#object-VerificationResult")).to_have_attribute("open", "")
    expect(page.locator("#object-VerificationResult")).to_contain_text("failed_trials")


@pytest.mark.slow
def test_it_opens_at_what_a_link_points_at_and_fits_a_phone(page, server):
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{server}/api/v1/docs#stream_events")  # without signing in, because the page shows no personal data
    expect(page.locator("#stream_events")).to_have_attribute("open", "")
    expect(page.locator("#stream_events")).to_contain_text("Last-Event-ID")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
