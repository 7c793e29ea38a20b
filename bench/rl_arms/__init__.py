"""The experiment on programs: a small policy is trained with several rewards, and the verifier judges every arm (docs/reference/learning.md)."""
