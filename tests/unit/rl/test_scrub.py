from __future__ import annotations

import pytest

from agents.rl.data.scrub import GONE, Scrubber

SCRUBBER = Scrubber({"OPENAI_API_KEY": "unusual-value-of-a-key", "HOME": "/root/somewhere", "A_TOKEN": "x"})
SECRETS = [
    "sk-" + "a1B2" * 8,
    "sk-ant-" + "api03-" + "x" * 20,
    "ghp_" + "A" * 36,
    "hf_" + "b" * 30,
    "AKIA" + "ABCDEFGH12345678",
    "Authorization: Bearer " + "abc.def-" * 4,
    "postgresql://admin:hunter2@db.example:5432/x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    'api_key = "not-a-known-make"',
    '"password": "correcthorse"',
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    "unusual-value-of-a-key",
    "sw_" + "t" * 24,
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_goes_wherever_it_stands(secret):
    assert SCRUBBER.secret(f"before {secret} after")
    cleaned = SCRUBBER.value({"a": [f"x {secret} y"], secret: 1})
    assert GONE in str(cleaned) and not SCRUBBER.secret(str(cleaned))


@pytest.mark.parametrize(
    "text",
    [
        "y = x @ w.mT + b@c.T", "token = tokens[0]", "key = hashlib.sha256(source)", "self.key = nn.Linear(8, 8)", "a" * 64, "sk-learn", "x: A_TOKEN",
        "attention(query, key, value)", "https://pytorch.org/docs", "api_key = os.environ['KEY']", 'mode = "train"',
    ],
)  # fmt: skip
def test_code_stays_as_it_is(text):
    assert not SCRUBBER.secret(text) and SCRUBBER.text(text) == text


def test_people_are_taken_out_of_texts():
    assert SCRUBBER.text("/home/ada/x.py, mail ada@example.org") == "/home/[person]/x.py, mail [person]"
