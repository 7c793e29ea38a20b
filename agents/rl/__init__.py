"""The learning half of the project: data sets from traces, a reward from verdicts, the verifier as an environment, and a trainer that is easy to
read."""
