"""The learning half of the project: data sets built from traces, a reward based on verdicts, the verifier as an environment, and a readable
trainer."""
