"""Tests the page of a training run in progress: curves and rollouts follow its output, and everything works with the keyboard."""

from __future__ import annotations

import json
import shutil

import pytest
from django.conf import settings
from playwright.sync_api import expect

from tests.unit.webapp.cast import SOURCE
from tests.unit.webapp.learning.trainings import SITTING, metrics, rollout, write

TICK = "document.querySelectorAll('[data-ticks]').forEach((part) => part.dispatchEvent(new CustomEvent('tick')))"


@pytest.fixture
def folder(people):
    made = write(settings.LEARNING_DIR / "live", team=people.alice.personal_team.slug, sittings=[SITTING | {"ended": None}], config={"steps": 9})
    yield made
    shutil.rmtree(settings.LEARNING_DIR)


@pytest.mark.timeout(120)
def test_curves_and_rollouts_follow_a_training(sign_in, people, folder):
    page = sign_in(people.alice)
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.get_by_role("link", name="live").click()
    legend = page.locator("[data-legend]").first
    expect(legend).to_contain_text("reward 0.3")
    chart = page.get_by_role("group", name="Reward by step")
    expect(page.locator("[data-drawn]").first).to_be_visible()
    for name, line in (("rollouts", rollout(4, task=SOURCE, before="")), ("metrics", metrics(4, reward=0.75))):
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    page.evaluate(TICK)
    expect(legend).to_contain_text("reward 0.75")
    expect(page.get_by_role("heading", name="Rollouts of step 4")).to_be_visible()
    chart.focus()
    page.keyboard.press("End")
    expect(page.locator("#live-region")).to_contain_text("Step 4: reward 0.75")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Rollouts of step 1")).to_be_visible()
    page.get_by_role("link", name="1. softmax").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Rollout 1 of step 1")
    expect(page.get_by_role("table", name="Program against the task")).to_contain_text("class ModelNew")
